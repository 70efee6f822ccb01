"""How programs are compiled: options of the compiler, and a cache that later processes read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

# Coordinates (points x features x dim) up to which a call takes milliseconds even if it is compiled
# without optimisation.
SMALL_CALL = 50_000
_MOST_BYTES = 500_000_000  # of the cache; the oldest programs are removed
_OFF = ("0", "off", "no", "none")  # values of HEATNETS_CACHE that switch the cache off


def current_platform() -> str:
    """The platform of the default device: "cpu", "gpu", ..."""
    device = jax.config.jax_default_device or jax.default_backend()  # type: ignore[attr-defined]
    return device if isinstance(device, str) else str(device.platform)


@cache
def compiler_options(platform: str, is_small: bool) -> dict[str, Any] | None:
    """XLA compiler options for programs with little or much work on a platform, or None.

    On a CPU small programs are not optimised: they run for milliseconds, and without optimisation
    they compile in a third of the time. On a GPU XLA does not compare its two code generators on
    each fusion: this comparison took 195 seconds for one sum over chunks in 1000 dimensions, and
    gains nothing on such sums.
    """
    if platform == "cpu":
        if not is_small:
            return None
        options = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
    else:
        options = {"xla_gpu_experimental_enable_fusion_autotuner": False}
    try:  # other versions of XLA may not know these options
        jax.jit(lambda x: x + 1, compiler_options=options)(jnp.zeros(()))
    except Exception:
        return None
    return options


def compiled(
    is_small: Callable[..., bool] = lambda *arguments: True,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: `eqx.filter_jit` with `compiler_options` for the platform and the work.

    Args:
        is_small: function of the arguments: whether this call is little work. By default every call
            is.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @cache
        def compiled_for(platform: str, small: bool) -> Callable[..., Any]:
            options = compiler_options(platform, small)
            return eqx.filter_jit(function, compiler_options=options)  # type: ignore[call-overload]

        @wraps(function)
        def run(*arguments: Any) -> Any:
            return compiled_for(current_platform(), is_small(*arguments))(*arguments)

        run.compiled_for = compiled_for  # type: ignore[attr-defined]
        return run

    return decorate


def use_compilation_cache(directory: str | os.PathLike[str] | None = None) -> Path | None:
    """Keep compiled programs in a directory, so that later processes need not compile them again.

    The command line does this by itself. At most 500 MB are kept. A damaged entry, or a directory
    that cannot be written, is ignored.

    Args:
        directory: where to keep them. By default the environment variable HEATNETS_CACHE (a
            directory, or `off`), else JAX_COMPILATION_CACHE_DIR, else `~/.cache/heatnets`.

    Returns:
        The directory; None if there is no cache.

    >>> import heatnets as hn
    >>> _ = hn.use_compilation_cache()  # doctest: +SKIP
    """
    chosen = str(directory or os.environ.get("HEATNETS_CACHE", ""))
    if chosen.lower() in _OFF:
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = Path(chosen or os.environ.get("JAX_COMPILATION_CACHE_DIR") or home / "heatnets")
    path = path.expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
        _remove_oldest(path)
    except OSError:
        return None
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
    return path


def _remove_oldest(directory: Path) -> None:
    """Remove the oldest programs until the rest takes less than `_MOST_BYTES`."""
    files = [(f.stat(), f) for f in directory.glob("*-cache")]
    total = sum(status.st_size for status, _ in files)
    for status, file in sorted(files, key=lambda pair: pair[0].st_mtime):
        if total <= _MOST_BYTES:
            return
        file.unlink(missing_ok=True)
        total -= status.st_size
