"""How pictures look and how they leave: colours, panels, files for print and for dark pages, SVG for a page of ours."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from heatnets._core import atomic_files
from heatnets._core.errors import InputError

# Okabe-Ito: told apart by colour-blind readers, and in grey; on white and on `_PAPER` each has a contrast of 2.2 or more, the first three of 3.3.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#777777"
FORMATS = (".png", ".svg", ".pdf")

_INK, _PAPER = "#e8e6e1", "#16181a"  # of dark pictures: those of `report.page`
_UNDATED = {
    ".png": None,
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}  # the same figure is the same file


def panels(
    rows: int, *, width: float = 5.6, height: float = 2.7, share: bool = False
) -> tuple[Figure, list[Any]]:
    """A figure of panels one below the other, narrow enough to be read on a telephone; `share` for one axis of x."""
    figure = Figure(figsize=(width, height * rows + 0.5), layout="constrained")
    axes = list(figure.subplots(rows, 1, sharex=share, squeeze=False)[:, 0])
    for ax in axes:
        gridded(ax)
    return figure, axes


def gridded(ax: Any) -> None:
    """A faint grid."""
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)


def legend(ax: Any, columns: int = 1) -> None:
    """A legend without a frame."""
    ax.legend(frameon=False, fontsize=8.5, ncols=columns)


def legend_above(ax: Any, title: str, columns: int = 2, more: Iterable[Artist] = ()) -> None:
    """A title and a legend between it and the panel, where no curve can lie below the words; `more` are handles beside those of the panel."""
    handles = [*ax.get_legend_handles_labels()[0], *more]
    rows = -(-len(handles) // columns)
    across = [
        handles[i] for j in range(columns) for i in range(j, len(handles), columns)
    ]  # row by row, as they are read
    shown = ax.legend(
        handles=across, frameon=False, fontsize=8.5, ncols=columns, loc="lower left", bbox_to_anchor=(-0.01, 1.0),
        borderaxespad=0.2, handlelength=1.7, columnspacing=1.4,
    )  # fmt: skip
    shown.set_in_layout(
        False
    )  # else long words would make the panel narrow; the title keeps the room
    ax.set_title(title or " ", pad=(8 if title else -4) + 13.5 * rows, loc="left", fontsize=10.5)


def decades(ax: Any) -> None:
    """A logarithmic axis of y from one power of ten to another, without the depths to which a curve dips in a few of its points."""
    curves = [np.asarray(line.get_ydata(), float) for line in ax.lines]
    curves = [y[np.isfinite(y) & (y > 0)] for y in curves if np.any(np.isfinite(y) & (y > 0))]
    ax.set_yscale("log")
    if curves:
        low = min(max(float(y.min()), 1e-3 * float(np.median(y))) for y in curves)
        high = max(float(y.max()) for y in curves)
        first, last = np.floor(np.log10(low / 2)), np.ceil(np.log10(high * 2))
        ax.set_ylim(10.0**first, 10.0**last)


def spelled(figure: Figure, ax: Any) -> None:
    """The common factor or offset of the ticks of y in the axis' label, where it lies below no other words."""
    figure.draw_without_rendering()
    offset = ax.yaxis.get_offset_text()
    if offset.get_text():
        offset.set_visible(False)
        ax.set_ylabel(f"{ax.get_ylabel()}  [{offset.get_text()}]")


def save(figure: Figure, path: str | Path, dark: bool = False) -> Path:
    """Write a figure as its file name says (.png, .svg, .pdf), whole or not at all; `dark` for light ink on a dark ground."""
    target = Path(path)
    ending = target.suffix.lower()
    if ending not in FORMATS:
        raise InputError(f"`path` must end in .png, .svg or .pdf; got {str(path)!r}.")
    if not target.parent.is_dir():
        raise InputError(f"`path` must lie in a folder that exists; got {str(path)!r}.")
    out = io.BytesIO()
    with (
        matplotlib.rc_context({"svg.hashsalt": "heatnets"}),
        _darkened(figure) if dark else contextlib.nullcontext(),
    ):
        figure.savefig(out, format=ending[1:], dpi=160, metadata=_UNDATED[ending])
    return atomic_files.write(target, out.getvalue())


def svg(figure: Figure) -> str:
    """A figure as SVG text to stand inside a page: no background, and black is the colour of the page's own text."""
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "heatnets"}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    drawn = out.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    # Text and lines in matplotlib's black carry the colour, or none at all, which means black too.
    drawn = re.sub(r"#000000|#262626", "currentColor", drawn)
    return drawn.replace("<svg ", '<svg fill="currentColor" ', 1)


_PAINTED: dict[type[Artist], tuple[str, ...]] = {
    Text: ("color",),
    Line2D: ("color", "markerfacecolor", "markeredgecolor"),
    Patch: ("facecolor", "edgecolor"),
    Collection: ("facecolor", "edgecolor"),
}


@contextlib.contextmanager
def _darkened(figure: Figure) -> Iterator[None]:
    """Black and white of a figure exchanged for light ink and dark paper, for as long as this lasts; all other colours can be seen on both."""
    figure.draw_without_rendering()  # makes the ticks
    changed: list[tuple[Artist, str, Any]] = []
    try:
        for kind, names in _PAINTED.items():
            for artist in figure.findobj(kind):
                if isinstance(artist, Collection) and artist.get_array() is not None:
                    continue
                for name in names:
                    old = getattr(artist, f"get_{name}")()
                    new = _exchanged(old)
                    if new is not None:
                        changed.append((artist, name, old))
                        artist.set(**{name: new})
        yield
    finally:
        for artist, name, old in reversed(changed):
            artist.set(**{name: old})


def _exchanged(colour: Any) -> Any:
    """Light ink for black and dark paper for white, each as opaque as before; None for what stays."""
    rgba = matplotlib.colors.to_rgba_array(colour)
    new = rgba.copy()
    for old, other in (((0.0, 0.0, 0.0), _INK), ((1.0, 1.0, 1.0), _PAPER)):
        new[np.all(rgba[:, :3] == old, axis=1) & (rgba[:, 3] > 0), :3] = matplotlib.colors.to_rgb(
            other
        )
    if np.array_equal(new, rgba):
        return None
    return new if np.ndim(colour) == 2 else tuple(new[0])
