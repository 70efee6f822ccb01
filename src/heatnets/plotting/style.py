"""Style and output of figures: colours, panels, legends, log axes; image files and inline SVG."""

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

# The Okabe-Ito palette: distinguishable for colour-blind readers, and in greyscale. On white and on
# `_PAPER` each colour has a contrast of 2.2 or more, the first three of 3.3.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#777777"
FORMATS = (".png", ".svg", ".pdf")

# Text and background colour of dark figures, the same as those of `html.page`.
_INK, _PAPER = "#e8e6e1", "#16181a"
# File metadata without dates, so that equal figures give identical files.
_UNDATED = {".png": None, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def panels(
    rows: int, *, width: float = 5.6, height: float = 2.7, share: bool = False
) -> tuple[Figure, list[Any]]:
    """A figure with `rows` panels in a column, readable on a phone; `share`: a common x-axis."""
    figure = Figure(figsize=(width, height * rows + 0.5), layout="constrained")
    axes = list(figure.subplots(rows, 1, sharex=share, squeeze=False)[:, 0])
    for ax in axes:
        add_grid(ax)
    return figure, axes


def add_grid(ax: Any) -> None:
    """Draw a faint grid behind the curves."""
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)


def legend(ax: Any, columns: int = 1) -> None:
    """Draw a legend without a frame."""
    ax.legend(frameon=False, fontsize=8.5, ncols=columns)


def legend_above(ax: Any, title: str, columns: int = 2, more: Iterable[Artist] = ()) -> None:
    """Draw a title, and a legend between it and the panel, where it cannot cover a curve.

    Args:
        ax: the panel.
        title: its title; may be empty.
        columns: number of columns of the legend.
        more: legend handles in addition to those of the panel.
    """
    handles = [*ax.get_legend_handles_labels()[0], *more]
    rows = -(-len(handles) // columns)
    # Matplotlib fills a legend column by column; this order makes it read row by row.
    by_row = [handles[i] for j in range(columns) for i in range(j, len(handles), columns)]
    box = ax.legend(
        handles=by_row,
        frameon=False,
        fontsize=8.5,
        ncols=columns,
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        borderaxespad=0.2,
        handlelength=1.7,
        columnspacing=1.4,
    )
    # Long labels must not make the panel narrower; the padding of the title reserves the space.
    box.set_in_layout(False)
    ax.set_title(title or " ", pad=(8 if title else -4) + 13.5 * rows, loc="left", fontsize=10.5)


def set_log_decades(ax: Any) -> None:
    """Make the y-axis logarithmic, with limits at powers of ten.

    The lower limit ignores the few points where a curve dips below 1e-3 of its median.
    """
    curves = [np.asarray(line.get_ydata(), float) for line in ax.lines]
    curves = [y[np.isfinite(y) & (y > 0)] for y in curves if np.any(np.isfinite(y) & (y > 0))]
    ax.set_yscale("log")
    if curves:
        low = min(max(float(y.min()), 1e-3 * float(np.median(y))) for y in curves)
        high = max(float(y.max()) for y in curves)
        first, last = np.floor(np.log10(low / 2)), np.ceil(np.log10(high * 2))
        ax.set_ylim(10.0**first, 10.0**last)


def move_offset_to_label(figure: Figure, ax: Any) -> None:
    """Move the common factor or offset of the y ticks into the label of the axis."""
    figure.draw_without_rendering()
    offset = ax.yaxis.get_offset_text()
    if offset.get_text():
        offset.set_visible(False)
        ax.set_ylabel(f"{ax.get_ylabel()}  [{offset.get_text()}]")


def save(figure: Figure, path: str | Path, dark: bool = False) -> Path:
    """Write a figure to a file, atomically: either the complete file is written or none.

    Args:
        figure: the figure.
        path: the file; its ending, .png, .svg or .pdf, sets the format.
        dark: light text on a dark background.

    Returns:
        The path of the file.
    """
    target = Path(path)
    ending = target.suffix.lower()
    if ending not in FORMATS:
        raise InputError(f"`path` must end in .png, .svg or .pdf; got {str(path)!r}.")
    if not target.parent.is_dir():
        raise InputError(f"`path` must lie in a folder that exists; got {str(path)!r}.")
    out = io.BytesIO()
    with (
        matplotlib.rc_context({"svg.hashsalt": "heatnets"}),
        _dark_colours(figure) if dark else contextlib.nullcontext(),
    ):
        figure.savefig(out, format=ending[1:], dpi=160, metadata=_UNDATED[ending])
    return atomic_files.write(target, out.getvalue())


def svg(figure: Figure) -> str:
    """Convert a figure to SVG for an HTML page: transparent, with black as the page's text colour.

    Args:
        figure: the figure.

    Returns:
        The text of the <svg> element.
    """
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "heatnets"}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    # Matplotlib's black text and lines have a colour attribute, or none, which means black too.
    text = re.sub(r"#000000|#262626", "currentColor", text)
    return text.replace("<svg ", '<svg fill="currentColor" ', 1)


# The colour properties of each kind of artist.
_COLOUR_PROPERTIES: dict[type[Artist], tuple[str, ...]] = {
    Text: ("color",),
    Line2D: ("color", "markerfacecolor", "markeredgecolor"),
    Patch: ("facecolor", "edgecolor"),
    Collection: ("facecolor", "edgecolor"),
}


@contextlib.contextmanager
def _dark_colours(figure: Figure) -> Iterator[None]:
    """Context in which black and white of a figure are replaced by `_INK` and `_PAPER`.

    All other colours are visible on both backgrounds.
    """
    figure.draw_without_rendering()  # creates the ticks
    changed: list[tuple[Artist, str, Any]] = []
    try:
        for kind, names in _COLOUR_PROPERTIES.items():
            for artist in figure.findobj(kind):
                if isinstance(artist, Collection) and artist.get_array() is not None:
                    continue
                for name in names:
                    old = getattr(artist, f"get_{name}")()
                    new = _dark_colour(old)
                    if new is not None:
                        changed.append((artist, name, old))
                        artist.set(**{name: new})
        yield
    finally:
        for artist, name, old in reversed(changed):
            artist.set(**{name: old})


def _dark_colour(colour: Any) -> Any:
    """`_INK` for black and `_PAPER` for white, with the same opacity; None for other colours."""
    rgba = matplotlib.colors.to_rgba_array(colour)
    new = rgba.copy()
    for old, other in (((0.0, 0.0, 0.0), _INK), ((1.0, 1.0, 1.0), _PAPER)):
        visible = np.all(rgba[:, :3] == old, axis=1) & (rgba[:, 3] > 0)
        new[visible, :3] = matplotlib.colors.to_rgb(other)
    if np.array_equal(new, rgba):
        return None
    return new if np.ndim(colour) == 2 else tuple(new[0])
