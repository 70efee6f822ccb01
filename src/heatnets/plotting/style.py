"""Style and output of figures: colours, panels, legends, log axes; image files and inline SVG."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import Collection
from matplotlib.figure import Figure

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
    rows: int, columns: int = 1, *, width: float = 5.6, height: float = 2.7, share: bool = False
) -> tuple[Figure, list[Any]]:
    """A figure with panels, each with a faint grid behind its curves.

    Args:
        rows: number of rows of panels.
        columns: number of columns; one is readable on a phone.
        width: width of the figure, in inches.
        height: height of a row, in inches.
        share: whether the panels have a common x-axis.
    """
    figure = Figure(figsize=(width, height * rows + 0.5), layout="constrained")
    axes = list(figure.subplots(rows, columns, sharex=share, squeeze=False).flat)
    for ax in axes:
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.set_axisbelow(True)
    return figure, axes


def legend_above(ax: Any, title: str, columns: int = 2, more: Iterable[Artist] = ()) -> None:
    """Draw a title, and a legend between it and the panel, where it cannot cover a curve.

    Args:
        ax: the panel.
        title: its title; may be empty.
        columns: number of columns of the legend.
        more: legend handles in addition to those of the panel.
    """
    handles = [*ax.get_legend_handles_labels()[0], *more]
    if not handles:
        ax.set_title(title, pad=8, loc="left", fontsize=10.5)
        return
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
    curves = [y[(y > 0) & (y < np.inf)] for y in curves]
    ax.set_yscale("log")
    if curves := [y for y in curves if y.size]:
        low = min(max(y.min(), 1e-3 * np.median(y)) for y in curves)
        high = max(y.max() for y in curves)
        first, last = np.floor(np.log10(low / 2)), np.ceil(np.log10(high * 2))
        ax.set_autoscaley_on(False)  # where all values are equal, Matplotlib would warn
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
    with _dark_colours(figure) if dark else contextlib.nullcontext():
        return atomic_files.write(target, _render(figure, ending, dpi=160))


def _render(figure: Figure, ending: str, **options: Any) -> bytes:
    """The content of an image file."""
    out = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "heatnets"}):
        figure.savefig(out, format=ending[1:], metadata=_UNDATED[ending], **options)
    return out.getvalue()


def svg(figure: Figure) -> str:
    """Convert a figure to SVG for an HTML page: transparent, with black as the page's text colour.

    Args:
        figure: the figure.

    Returns:
        The text of the <svg> element.
    """
    text = _render(figure, ".svg", transparent=True).decode()
    text = text[text.index("<svg") :]
    # Matplotlib's black text and lines have a colour attribute, or none, which means black too.
    text = re.sub(r"#000000|#262626", "currentColor", text)
    return text.replace("<svg ", '<svg fill="currentColor" ', 1)


_COLOUR_PROPERTIES = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")


@contextlib.contextmanager
def _dark_colours(figure: Figure) -> Iterator[None]:
    """Context in which black and white of a figure are replaced by `_INK` and `_PAPER`.

    All other colours are visible on both backgrounds.
    """
    figure.draw_without_rendering()  # creates the ticks
    with contextlib.ExitStack() as restore:
        for artist, name in itertools.product(figure.findobj(), _COLOUR_PROPERTIES):
            if not hasattr(artist, f"get_{name}") or _has_colour_map(artist):
                continue
            old = getattr(artist, f"get_{name}")()
            new = _dark_colour(old)
            if new is not None:
                restore.callback(artist.set, **{name: old})
                artist.set(**{name: new})
        yield


def _has_colour_map(artist: Artist) -> bool:
    """Whether the colours of an artist show numbers."""
    return isinstance(artist, Collection) and artist.get_array() is not None


def _dark_colour(colour: Any) -> Any:
    """`_INK` for black and `_PAPER` for white, with the same opacity; None for other colours."""
    rgba = matplotlib.colors.to_rgba_array(colour)
    new = rgba.copy()
    for old, other in ((0.0, _INK), (1.0, _PAPER)):
        visible = np.all(rgba[:, :3] == old, axis=1) & (rgba[:, 3] > 0)
        new[visible, :3] = matplotlib.colors.to_rgb(other)
    if np.array_equal(new, rgba):
        return None
    return new if np.ndim(colour) == 2 else tuple(new[0])
