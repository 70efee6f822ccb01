"""Whether the kinks of an initial condition can be integrated in one direction, and in which.

Lines in a direction are sampled: on each of them the named kinks must be all there are, which
quadratures with more nodes show, and most lines must cross the kinks rather than touch them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from heatnets._core import streams
from heatnets._core.execution import ExecutionContext
from heatnets._core.tiling import map_points
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.diffusion import Diffusion
from heatnets.pde.function import Function
from heatnets.pde.kinks import KinkArguments, UnnamedKink, name_kinks
from heatnets.pde.laplacian_choice import select_method
from heatnets.pde.preintegration import (
    Argument,
    PreIntegration,
    find_roots,
    normal_density,
    quadrature,
    root_normal,
)

_COORDINATES = 2e5  # of the sampled points: 512 points up to d = 400, fewer beyond, 64 at least
_NODES = (12, 16, 20, 24, 32, 48)  # quadrature nodes between two roots, the first that are enough
_MANY_NODES = 64  # of the quadrature that others are compared with
_CELLS, _MANY_CELLS = (4, 16, 64), 128  # in which roots are looked for, and are compared with
_EXACT, _RESOLVED = 1e-9, 1e-6  # relative errors of a quadrature: wanted, and still good
_SAFETY = 4.0  # times the largest error of a quadrature on sampled lines: the bound
_MAX_ROOTS = 8  # on one line
_NEGLIGIBLE = 0.001  # share of lines whose quadrature may be wrong, over a region
_FAR = 6.0  # standard deviations of a path: kinks that are further away do not matter
_TOUCHING = 0.2  # cosine of the angle between a line and a kink's normal below which they touch
_MAX_TOUCHING = 0.002  # share of crossings, weighted by the normal density, that may touch
_COMBINATIONS = 64  # random combinations of the kinks' normals that are tried as directions


class Lines(NamedTuple):
    """Points through which lines go: times (n,), points (n, dim), and √(2t) (n,)."""

    t: np.ndarray
    y: np.ndarray
    sigma: np.ndarray


def choose_preintegration(
    problem: CanonicalProblem, seed: int, ctx: ExecutionContext
) -> tuple[PreIntegration | None, str]:
    """How to integrate the kinks of the initial condition of a problem, in one direction.

    Returns:
        The rule, and an empty string; or None, and the reason why there is none.
    """
    if problem.coefficients is not None:
        return None, "the coefficients vary"
    if problem.source.uses_u:
        return None, "the source depends on u"
    try:
        kinks, count = name_kinks(problem.initial, problem.dim)
    except UnnamedKink as reason:
        return None, str(reason)
    if not count:
        return None, "no operation names them"
    lines = _sample_lines(problem, streams.generator(seed, "pre-integration"))
    kinks, normals = _choose_kinks(kinks, problem.diffusion, lines, ctx)
    if not len(normals):
        return None, "no path meets the kinks that operations name"
    axis = np.asarray(problem.diffusion.apply_sqrt(_direction(normals)))
    rule = PreIntegration(kinks, axis, np.asarray(problem.diffusion.solve(axis)), 1, 4, 16)
    return _complete(rule, problem, lines, ctx)


def unresolved_share(
    problem: CanonicalProblem,
    seed: int,
    ctx: ExecutionContext,
    points: tuple[np.ndarray, np.ndarray] | None = None,
) -> float:
    """The share of lines on which the quadrature of a problem's rule misses something.

    Lines go through points on paths from `points`, times (n,) and points (n, dim); if None, from
    the region.
    """
    rule = problem.preintegration
    assert rule is not None
    lines = _sample_lines(problem, streams.generator(seed, "pre-integration check"), points)
    found = _examine(rule, problem, lines, ctx)
    return float(np.mean(found.error[:, _NODES.index(rule.nodes)] > _RESOLVED))


def _sample_lines(
    problem: CanonicalProblem,
    rng: np.random.Generator,
    points: tuple[np.ndarray, np.ndarray] | None = None,
) -> Lines:
    """Points at the ends of paths, as features shift them before they integrate."""
    n = int(np.clip(_COORDINATES / problem.dim, 64, 512))
    if points is None:
        x = problem.region.sample(rng, n, problem.dim)
        t, x = problem.region.at_fractions(1 - 0.9 * rng.random(n), problem.horizon, x)
    else:
        chosen = rng.integers(len(points[0]), size=n)
        t, x = points[0][chosen], points[1][chosen]
    # First a path to the time s, where a residual may be sampled, then one to the initial time.
    s = t * np.where(rng.random(n) < 0.5, 1.0, rng.random(n))
    for lag in (t - s, s):
        noise = problem.paths.sample_noise(rng, (n,), problem.dim)
        x = problem.paths.simulate(t, x, lag, noise).position
    return Lines(s, x, np.sqrt(2 * s))


def _choose_kinks(
    kinks: KinkArguments, diffusion: Diffusion, lines: Lines, ctx: ExecutionContext
) -> tuple[KinkArguments, np.ndarray]:
    """The kinks that paths meet, each named once, and their normals.

    Returns:
        The kinks, and for each the mean of its unit normals Sᵀ∇g / |Sᵀ∇g|, (kinks, dim), with more
        weight near the kink.
    """
    dim = lines.y.shape[1]
    g, normals = map_points(_arguments, (kinks, diffusion), (lines.y,), 64 * dim, ctx)
    usable = np.all(np.isfinite(g), axis=0) & np.all(np.isfinite(normals), axis=(0, 2))
    g, normals = np.where(usable, g, 0.0), np.where(usable[:, None], normals, 0.0)
    sizes = np.linalg.norm(normals, axis=2)
    units = normals / np.where(sizes > 0, sizes, 1.0)[:, :, None]
    # Standard deviations of a path from the point to the kink.
    width = lines.sigma[:, None] * sizes
    distance = np.divide(np.abs(g), width, out=np.full_like(g, np.inf), where=width > 0)
    chosen: list[int] = []
    for i in np.flatnonzero(np.min(distance, axis=0) < _FAR):
        if not any(_is_multiple(g[:, i], g[:, j]) for j in chosen):
            chosen.append(int(i))
    weights = np.exp(-0.5 * np.minimum(distance, _FAR) ** 2)
    means = [weights[:, i] @ units[:, i] for i in chosen]
    units_of_means = [mean / (np.linalg.norm(mean) or 1.0) for mean in means]
    return replace(kinks, chosen=tuple(chosen)), np.array(units_of_means).reshape(-1, dim)


def _is_multiple(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether a (n,) is a multiple of b (n,)."""
    factor = (a @ b) / (b @ b)
    return bool(np.max(np.abs(a - factor * b)) < 1e-9 * np.max(np.abs(a)))


def _arguments(context: tuple[KinkArguments, Diffusion], x: Array) -> tuple[Array, Array]:
    """The arguments g (kinks,) at x, and Sᵀ∇g (kinks, dim)."""
    kinks, diffusion = context

    def of_noise(xi: Array) -> Array:
        return kinks(x + diffusion.apply_sqrt(xi))

    value, pull_back = jax.vjp(of_noise, jnp.zeros_like(x))
    return value, jax.vmap(lambda v: pull_back(v)[0])(jnp.eye(len(value)))


def _direction(normals: np.ndarray) -> np.ndarray:
    """The unit vector e along which kinks with these normals, (kinks, dim), are integrated.

    Of the normals and random combinations of them, the one whose smallest cosine with them is
    largest.
    """
    if len(normals) == 1:
        return normals[0]
    factors = np.random.default_rng(0).standard_normal((_COMBINATIONS, len(normals)))
    combined = np.concatenate([normals, np.sign(factors) @ normals, factors @ normals])
    combined = combined / np.maximum(np.linalg.norm(combined, axis=1), 1e-300)[:, None]
    smallest = np.min(np.abs(combined @ normals.T), axis=1)
    return combined[int(np.argmax(smallest))]


class _Examined(NamedTuple):
    """What quadratures on n lines show."""

    difference: np.ndarray  # errors of quadratures with `_NODES` nodes, (n, len(_NODES))
    error: np.ndarray  # relative errors of the same, (n, len(_NODES))
    scale: float  # root mean square of u
    jump: np.ndarray  # |jump of u0| at the roots, relative to the mean size of u, (n, roots)
    cosine: np.ndarray  # of the angles between line and normals, at the roots, (n, roots)
    weight: np.ndarray  # of the roots, (n, roots); zero where there is none


def _complete(
    rule: PreIntegration, problem: CanonicalProblem, lines: Lines, ctx: ExecutionContext
) -> tuple[PreIntegration | None, str]:
    """The rule with its numbers of roots and nodes; or None, and the reason why it does not serve.

    The numbers are the smallest that serve on the lines.
    """
    floats = 8 * _MANY_CELLS * problem.dim
    counts = map_points(_count_roots, rule, (lines.y, lines.sigma), floats, ctx)
    roots = max(int(np.max(counts)), 1)
    if roots > _MAX_ROOTS:
        return None, f"a line meets {roots} of them, more than {_MAX_ROOTS}"
    missed = np.mean(counts[:, :-1] != counts[:, -1:], axis=0)
    cells = [n for n, share in zip(_CELLS, missed, strict=True) if share <= _NEGLIGIBLE]
    rule = replace(rule, roots=roots, cells=(*cells, _CELLS[-1])[0])
    found = _examine(rule, problem, lines, ctx)
    wrong = np.mean(found.error > _RESOLVED, axis=0)
    if wrong[-1] > _NEGLIGIBLE:
        share = f"{100 * wrong[-1]:.2g} % of lines"
        return None, f"quadratures between those that are named do not converge on {share}"
    touching = np.sum(found.weight * (found.cosine < _TOUCHING)) / np.sum(found.weight)
    if touching > _MAX_TOUCHING:
        return None, f"lines touch them, {100 * touching:.2g} % of the crossings"
    exact = np.mean(found.error > _EXACT, axis=0) <= _NEGLIGIBLE
    nodes = _NODES[int(np.argmax(exact))] if np.any(exact) else _NODES[-1]
    method = None
    if np.any(found.weight * found.jump > 1e-9):
        argument = Function(Argument(rule.kinks, np.asarray(0)))
        points = ((y,) for y in lines.y[:3])
        method = select_method("a kink", argument, *points, diffusion=problem.diffusion)[0].method
    error = _SAFETY * float(np.max(found.difference[:, _NODES.index(nodes)]))
    relative = error / found.scale
    return replace(rule, nodes=nodes, error=error, relative_error=relative, kink_method=method), ""


def _examine(
    rule: PreIntegration, problem: CanonicalProblem, lines: Lines, ctx: ExecutionContext
) -> _Examined:
    """Compare quadratures on lines, and look at the roots."""
    floats = 16 * _MANY_NODES * (rule.roots + 1) * problem.dim
    context = (rule, problem.initial, problem.diffusion)
    values, jump, cosine, weight = map_points(
        _examine_line, context, (lines.y, lines.sigma), floats, ctx
    )
    scale = float(np.sqrt(np.mean(values[:, -1] ** 2))) or 1.0
    size = np.maximum(np.abs(values[:, -1:]), scale)
    difference = np.abs(values[:, :-1] - values[:, -1:])
    error = np.where(np.isfinite(difference), difference / size, np.inf)
    return _Examined(difference, error, scale, jump / scale, cosine, weight)


def _count_roots(rule: PreIntegration, y: Array, sigma: Array) -> Array:
    """The number of roots on a line, found in `_CELLS` and in `_MANY_CELLS` cells."""
    return jnp.stack([find_roots(rule, y, sigma, cells)[1] for cells in (*_CELLS, _MANY_CELLS)])


def _examine_line(context: Any, y: Array, sigma: Array) -> tuple[Array, ...]:
    """Integrals with `_NODES` and `_MANY_NODES` nodes, and the roots on one line."""
    rule, initial, diffusion = context
    axis = jnp.asarray(rule.axis)

    def value(z: Array) -> Array:
        return initial(y + sigma * z * axis)

    def integral(z: Array, nodes: int) -> Array:
        at, weights = quadrature(z, nodes)
        return weights @ jax.vmap(value)(at)

    roots, _ = find_roots(rule, y, sigma)
    fine, _ = find_roots(rule, y, sigma, _MANY_CELLS)
    values = [integral(roots.z, nodes) for nodes in _NODES] + [integral(fine.z, _MANY_NODES)]

    def change(z: Array, distance: float) -> Array:
        return jnp.abs(value(z - distance) - value(z + distance))

    # If u0 is continuous, the change falls with the distance.
    far, near = (jax.vmap(lambda z, h=h: change(z, h))(roots.z) for h in (1e-6, 1e-8))
    cosines = jax.vmap(lambda z, kink: _cosine(rule, diffusion, y + sigma * z * axis, kink))(
        roots.z, roots.kink
    )
    weight = jnp.where(roots.exists, normal_density(roots.z), 0.0)
    jump = jnp.where(near > 0.5 * far, near, 0.0)
    return jnp.stack(values), jump, cosines, weight


def _cosine(rule: PreIntegration, diffusion: Diffusion, x: Array, kink: Array) -> Array:
    """|cos| of the angle between the line and the normal of a kink at x, in whitened space."""
    normal, across = root_normal(rule, diffusion, kink, x)
    along = jnp.abs(jnp.asarray(rule.axis) @ normal)
    return along / jnp.sqrt(along**2 + jnp.maximum(normal @ across, 0.0) + 1e-300)
