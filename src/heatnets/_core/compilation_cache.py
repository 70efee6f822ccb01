"""Compiled programs on disk, so that a later process need not compile them again.

JAX is not imported here: the command line calls this before it knows whether it needs JAX.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

_MOST_BYTES = 500_000_000  # the oldest programs are removed
_OFF = ("0", "off", "no", "none")  # values of HEATNETS_CACHE that switch the cache off


def use_compilation_cache(directory: str | os.PathLike[str] | None = None) -> Path | None:
    """Keep compiled programs in a directory, so that later processes need not compile them again.

    Call it before the first solve. The command line does this by itself. A damaged entry, or a
    directory that cannot be written, is ignored. If JAX_COMPILATION_CACHE_DIR is set, JAX keeps
    programs there, and this does nothing.

    Args:
        directory: where to keep them. By default the environment variable HEATNETS_CACHE (a
            directory, or `off`), else `~/.cache/heatnets`, where at most 500 MB are kept.

    Returns:
        The directory; None if nothing was changed.

    >>> import heatnets as hn
    >>> directory = hn.use_compilation_cache()  # doctest: +SKIP
    """
    path = _choose_directory(directory)
    if path is None:
        return None
    settings = {
        "jax_compilation_cache_dir": str(path),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    if jax := sys.modules.get("jax"):
        from jax.experimental.compilation_cache import compilation_cache

        if jax.config.jax_compilation_cache_dir not in (None, str(path)):
            compilation_cache.reset_cache()  # JAX would go on with the directory that it knows
        for name, value in settings.items():
            jax.config.update(name, value)
    else:  # read when JAX is imported
        os.environ.update({name.upper(): str(value) for name, value in settings.items()})
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
    return path


def _choose_directory(directory: str | os.PathLike[str] | None) -> Path | None:
    """The directory, made if need be; None if there is to be none, or it cannot be written."""
    chosen = str(directory or os.environ.get("HEATNETS_CACHE", ""))
    if chosen.lower() in _OFF:
        return None
    if not chosen and "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return None  # JAX has a cache of its own, with settings of its own
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
        path = Path(chosen or home / "heatnets").expanduser()
        path.mkdir(parents=True, exist_ok=True)
        if not chosen:
            _remove_oldest(path)
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        return None
    return path if os.access(path, os.W_OK) else None


def _remove_oldest(directory: Path) -> None:
    """Remove the oldest programs until the rest takes at most `_MOST_BYTES`."""
    files = [(f.stat(), f) for f in directory.glob("*-cache")]
    total = sum(status.st_size for status, _ in files)
    for status, file in sorted(files, key=lambda pair: pair[0].st_mtime):
        if total <= _MOST_BYTES:
            return
        file.unlink(missing_ok=True)
        total -= status.st_size
