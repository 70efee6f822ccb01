"""Whether the kinks of an initial condition can be integrated in one direction, and in which.

Lines in a direction are sampled: on each of them the named kinks must be all there are, which
quadratures with more nodes show, and most lines must cross the kinks rather than touch them. Lines
in random directions show kinks that no operation names, wherever they lie.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
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
    ITERATIONS,
    REACH,
    Argument,
    PreIntegration,
    find_roots,
    line_quadrature,
    normal_density,
    quadrature,
    root_normal,
)

_COORDINATES = 2e5  # of the sampled points: 512 points up to d = 400, fewer beyond, 64 at least
_COUNTED = 8  # times as many lines on which roots are counted
_PER_POINT = 64  # lines through each point of a certificate; fewer if there are many points
_NODES = (12, 16, 20, 24, 32, 48)  # quadrature nodes between two roots, the first that are enough
_MANY_NODES = 64  # of the quadrature that others are compared with
_CELLS, _MANY_CELLS = (4, 16, 64), 128  # in which roots are looked for, and are compared with
_ITERATIONS = (1, 2, 4, 10)  # to find a root, the first that are enough
_FOUND = 1e-12  # error of a root that has been found
# Lines end at the first reach beyond which there is nothing: the last is compared with. A lognormal
# of total volatility s has its mass around s, and 7.5 standard deviations about it.
_REACHES = (REACH, 9.0, 11.0, 14.0)
_CUT_OFF = 1e-11  # relative size of what may lie beyond
_EXACT, _RESOLVED = 1e-9, 1e-6  # relative errors of a quadrature: wanted, and still good
_SAFETY = 4.0  # times the largest error of a quadrature on sampled lines: the bound
# On one line. With six (a put on the worst of five assets) all checks here were passed, and yet the
# networks were wrong by a tenth; why is not known.
_MAX_ROOTS = 4
_NEGLIGIBLE = 0.001  # share of lines whose quadrature may be wrong, over a region
_UNNAMED = 0.02  # the same of lines in random directions, which may touch kinks
_BESIDE, _BEND = 1e-6, 1e-2  # standard deviations beside a kink; relative change of a derivative
_NEWTON_STEPS = 8  # towards a kink
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
    rng = streams.generator(seed, "pre-integration")
    lines = _sample_lines(problem, rng)
    kinks, normals = _choose_kinks(kinks, problem, lines, ctx)
    if not len(normals):
        return None, "no path meets the kinks that operations name"
    axis = np.asarray(problem.diffusion.apply_sqrt(_direction(normals)))
    rule = PreIntegration(kinks, axis, np.asarray(problem.diffusion.solve(axis)), 1, 4, 16)
    many_lines = _sample_lines(problem, rng, _COUNTED)
    complete, why = _complete(rule, problem, lines, many_lines, ctx)
    if complete is None:
        return None, why
    if (share := _unnamed_share(complete, problem, lines, rng, ctx)) > _UNNAMED:
        return None, f"operations do not name all of them: {100 * share:.2g} % of lines meet others"
    return complete, ""


class LineErrors(NamedTuple):
    """Errors of the quadrature of a problem's rule at n points.

    Attributes:
        share: the share of lines through paths from each point on which it misses something, (n,).
        difference: the largest error on the others, (n,).
    """

    share: np.ndarray
    difference: np.ndarray


def line_errors(
    problem: CanonicalProblem, seed: int, ctx: ExecutionContext, t: np.ndarray, x: np.ndarray
) -> LineErrors:
    """Errors of the quadrature on paths from points t (n,), x (n, dim)."""
    rule, n = problem.preintegration, len(t)
    assert rule is not None
    per_point = int(np.clip(_COUNTED * _COORDINATES / (problem.dim * n), 8, _PER_POINT))
    rng = streams.generator(seed, "pre-integration check")
    lines = _lines_from(problem, rng, np.repeat(t, per_point), np.repeat(x, per_point, axis=0))
    found = _examine(rule, problem, lines, ctx)
    chosen = _NODES.index(rule.nodes)
    # Relative to the values from the same point, or to those of the region if these are larger.
    size = np.sqrt(np.mean(found.values.reshape(n, per_point) ** 2, axis=1))
    if rule.relative_error > 0:
        size = np.maximum(size, rule.error / rule.relative_error)
    difference = found.difference[:, chosen].reshape(n, per_point)
    wrong = ~(difference <= _RESOLVED * size[:, None])
    largest = np.max(np.where(wrong, 0.0, difference), axis=1)
    return LineErrors(np.mean(wrong, axis=1), _SAFETY * largest)


def _sample_lines(problem: CanonicalProblem, rng: np.random.Generator, factor: int = 1) -> Lines:
    """Points at the ends of paths from the region, as features shift them before they integrate."""
    n = factor * int(np.clip(_COORDINATES / problem.dim, 64, 512))
    x = problem.region.sample(rng, n, problem.dim)
    t, x = problem.region.at_fractions(1 - 0.9 * rng.random(n), problem.horizon, x)
    return _lines_from(problem, rng, t, x)


def _lines_from(
    problem: CanonicalProblem, rng: np.random.Generator, t: np.ndarray, x: np.ndarray
) -> Lines:
    """The same for paths from points t (n,), x (n, dim)."""
    n = len(t)
    # First a path to the time s, where a residual may be sampled, then one to the initial time.
    s = t * np.where(rng.random(n) < 0.5, 1.0, rng.random(n))
    for lag in (t - s, s):
        noise = problem.paths.sample_noise(rng, (n,), problem.dim)
        x = problem.paths.simulate(t, x, lag, noise).position
    return Lines(s, x, np.sqrt(2 * s))


def _choose_kinks(
    kinks: KinkArguments, problem: CanonicalProblem, lines: Lines, ctx: ExecutionContext
) -> tuple[KinkArguments, np.ndarray]:
    """The kinks that paths meet, each named once, and their normals.

    Where an argument is zero, the function may yet be smooth: log(eᵃ + eᵇ) compares a and b.

    Returns:
        The kinks, and for each the mean of its unit normals Sᵀ∇g / |Sᵀ∇g|, (kinks, dim), with more
        weight near the kink.
    """
    dim, diffusion = lines.y.shape[1], problem.diffusion
    context = (kinks, problem.initial, diffusion)
    points = (lines.y, lines.sigma)
    g, normals, bends = map_points(_arguments, context, points, 64 * dim, ctx)
    usable = np.all(np.isfinite(g), axis=0) & np.all(np.isfinite(normals), axis=(0, 2))
    g, normals = np.where(usable, g, 0.0), np.where(usable[:, None], normals, 0.0)
    sizes = np.linalg.norm(normals, axis=2)
    units = normals / np.where(sizes > 0, sizes, 1.0)[:, :, None]
    # Standard deviations of a path from the point to the kink.
    width = lines.sigma[:, None] * sizes
    distance = np.divide(np.abs(g), width, out=np.full_like(g, np.inf), where=width > 0)
    chosen: list[int] = []
    is_kink = np.any(~(bends <= _BEND) & (distance < _FAR), axis=0)
    for i in np.flatnonzero(is_kink):
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


def _arguments(
    context: tuple[KinkArguments, Function, Diffusion], x: Array, sigma: Array
) -> tuple[Array, Array, Array]:
    """The arguments g (kinks,) at x; Sᵀ∇g (kinks, dim); how much f bends there, (kinks,)."""
    kinks, f, diffusion = context

    def of_noise(xi: Array) -> Array:
        return kinks(x + sigma * diffusion.apply_sqrt(xi))

    value, pull_back = jax.vjp(of_noise, jnp.zeros_like(x))
    normals = jax.vmap(lambda v: pull_back(v)[0])(jnp.eye(len(value)))

    def bend(i: Array, normal: Array) -> Array:
        """The largest relative change of f, f' and f'' across the kink that is nearest to x."""
        unit = normal / (jnp.linalg.norm(normal) + 1e-300)

        def towards(_: Any, z: Array) -> Array:
            g, slope = jax.jvp(lambda z: of_noise(z * unit)[i], (z,), (jnp.ones_like(z),))
            return z - jnp.where(slope == 0, 0.0, g / jnp.where(slope == 0, 1.0, slope))

        root = jax.lax.fori_loop(0, _NEWTON_STEPS, towards, jnp.zeros(()))

        def along(z: Array) -> Array:
            return f(x + sigma * diffusion.apply_sqrt(z * unit))

        def derivatives(z: Array) -> Array:
            first = lambda z: jax.jvp(along, (z,), (jnp.ones_like(z),))[1]  # noqa: E731
            return jnp.stack([along(z), *jax.jvp(first, (z,), (jnp.ones_like(z),))])

        before, after = derivatives(root - _BESIDE), derivatives(root + _BESIDE)
        size = jnp.abs(before) + jnp.abs(after)
        # A smooth derivative may pass through zero: it then changes by 1e-6 of the next one.
        return jnp.max(jnp.abs(after - before) / (size + 1e-3 * jnp.max(size[1:]) + 1e-300))

    bends = jax.vmap(bend)(jnp.arange(len(value)), normals)
    return value, normals / sigma, bends


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

    values: np.ndarray  # of the most accurate quadrature, (n,)
    difference: np.ndarray  # errors of quadratures with `_NODES` nodes, (n, len(_NODES))
    error: np.ndarray  # relative errors of the same, (n, len(_NODES))
    scale: float  # root mean square of u
    jump: np.ndarray  # |jump of u0| at the roots, relative to the mean size of u, (n, roots)
    cosine: np.ndarray  # of the angles between line and normals, at the roots, (n, roots)
    weight: np.ndarray  # of the roots, (n, roots); zero where there is none


def _complete(
    rule: PreIntegration,
    problem: CanonicalProblem,
    lines: Lines,
    many_lines: Lines,
    ctx: ExecutionContext,
) -> tuple[PreIntegration | None, str]:
    """The rule with its reach and its numbers of roots and nodes; or None, and the reason why.

    The numbers are the smallest that serve on the lines. On `many_lines` roots are counted.
    """
    floats = 16 * _MANY_NODES * problem.dim
    parts = map_points(_parts, (rule, problem.initial), (lines.y, lines.sigma), floats, ctx)
    within = np.cumsum(parts, axis=1)
    size = np.maximum(within[:, -1:], np.sqrt(np.mean(within[:, -1] ** 2)))
    enough = np.all(within[:, -1:] - within <= _CUT_OFF * size, axis=0)
    rule = replace(rule, reach=_REACHES[int(np.argmax(enough))] if np.any(enough) else _REACHES[-1])
    floats = 8 * _MANY_CELLS * problem.dim
    counts = map_points(_count_roots, rule, (many_lines.y, many_lines.sigma), floats, ctx)
    roots = max(int(np.max(counts)), 1)
    if roots > _MAX_ROOTS:
        return None, f"a line meets {roots} of them, more than {_MAX_ROOTS}"
    missed = np.mean(counts[:, :-1] != counts[:, -1:], axis=0)
    cells = [n for n, share in zip(_CELLS, missed, strict=True) if share <= _NEGLIGIBLE]
    rule = replace(rule, roots=roots, cells=(*cells, _CELLS[-1])[0])
    rule = replace(rule, iterations=_choose_iterations(rule, many_lines, ctx))
    if roots == 1 and len(rule.kinks.chosen or ()) == 1:
        rule = replace(rule, support=_find_support(rule, problem, many_lines, ctx))
    found = _examine(rule, problem, lines, ctx)
    wrong = np.mean(found.error > _RESOLVED, axis=0)
    if wrong[-1] > _NEGLIGIBLE:
        share = f"{100 * wrong[-1]:.2g} % of lines"
        return None, f"quadratures between those that are named do not converge on {share}"
    if not np.any(found.weight):
        return None, "no line meets them"
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
    error = np.asarray(_SAFETY * np.max(found.difference[:, _NODES.index(nodes)]))
    relative = np.asarray(error / found.scale)
    return replace(rule, nodes=nodes, error=error, relative_error=relative, kink_method=method), ""


def _unnamed_share(
    rule: PreIntegration,
    problem: CanonicalProblem,
    lines: Lines,
    rng: np.random.Generator,
    ctx: ExecutionContext,
) -> float:
    """The share of lines in random directions on which there are kinks that are not named.

    There quadratures between the named ones do not converge.
    """
    normal = rng.standard_normal(lines.y.shape)
    normal /= np.linalg.norm(normal, axis=1)[:, None]
    axes = map_points(_apply_sqrt, problem.diffusion, (normal,), problem.dim, ctx)
    context = (replace(rule, roots=_MAX_ROOTS), problem.initial)
    floats = 16 * _MANY_NODES * (_MAX_ROOTS + 1) * problem.dim
    values = map_points(_integrate_along, context, (lines.y, lines.sigma, axes), floats, ctx)
    scale = float(np.sqrt(np.mean(values[:, 1] ** 2))) or 1.0
    size = np.maximum(np.abs(values[:, 1]), scale)
    return float(np.mean(~(np.abs(values[:, 0] - values[:, 1]) <= _RESOLVED * size)))


def _apply_sqrt(diffusion: Diffusion, normal: Array) -> Array:
    return jnp.asarray(diffusion.apply_sqrt(normal))


def _integrate_along(context: Any, y: Array, sigma: Array, axis: Array) -> Array:
    """Integrals on one line in a direction of its own, with the two largest numbers of nodes."""
    rule, initial = context
    rule = eqx.tree_at(lambda rule: rule.axis, rule, axis)
    return jnp.stack(
        [_integral(rule, initial, y, sigma, n, _MANY_CELLS) for n in (_NODES[-1], _MANY_NODES)]
    )


def _integral(
    rule: PreIntegration, initial: Function, y: Array, sigma: Array, nodes: int, cells: int
) -> Array:
    """The integral of u0 on one line."""
    z, weights = quadrature(find_roots(rule, y, sigma, cells).z, nodes, rule.reach)
    axis = jnp.asarray(rule.axis)
    return weights @ jax.vmap(lambda z: initial(y + sigma * z * axis))(z)


def _parts(context: Any, y: Array, sigma: Array) -> Array:
    """The integrals of |u0| on one line between the numbers of `_REACHES`, from zero on."""
    rule, initial = context
    axis = jnp.asarray(rule.axis)
    points, weights = np.polynomial.legendre.leggauss(_MANY_NODES)
    parts = []
    for low, high in zip((0.0, *_REACHES[:-1]), _REACHES, strict=True):
        z = 0.5 * (high + low) + 0.5 * (high - low) * jnp.asarray(points)
        sides = (jnp.abs(jax.vmap(lambda z: initial(y + sigma * z * axis))(s * z)) for s in (1, -1))
        parts.append(0.5 * (high - low) * jnp.asarray(weights) @ (normal_density(z) * sum(sides)))
    return jnp.stack(parts)


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
    return _Examined(values[:, -1], difference, error, scale, jump / scale, cosine, weight)


def _count_roots(rule: PreIntegration, y: Array, sigma: Array) -> Array:
    """The number of roots on a line, found in `_CELLS` and in `_MANY_CELLS` cells."""
    return jnp.stack([find_roots(rule, y, sigma, cells).count for cells in (*_CELLS, _MANY_CELLS)])


def _choose_iterations(rule: PreIntegration, lines: Lines, ctx: ExecutionContext) -> int:
    """The fewest iterations that find the roots on lines."""
    floats = 8 * (len(_ITERATIONS) + 1) * rule.cells * lines.y.shape[1]
    errors = map_points(_root_errors, rule, (lines.y, lines.sigma), floats, ctx)
    enough = np.all(errors <= _FOUND, axis=0)
    return next((n for n, found in zip(_ITERATIONS, enough, strict=True) if found), ITERATIONS)


def _root_errors(rule: PreIntegration, y: Array, sigma: Array) -> Array:
    """The largest error of the roots on a line with each of `_ITERATIONS`."""
    found = [
        find_roots(replace(rule, iterations=n), y, sigma).z for n in (*_ITERATIONS, ITERATIONS)
    ]
    return jnp.stack([jnp.max(jnp.abs(z - found[-1])) for z in found[:-1]])


def _find_support(
    rule: PreIntegration, problem: CanonicalProblem, lines: Lines, ctx: ExecutionContext
) -> int:
    """The sign that the only argument has where u0 is not zero on lines; 0 if it has both."""
    floats, context = 8 * _MANY_NODES * problem.dim, (rule, problem.initial)
    sizes = map_points(_sizes, context, (lines.y, lines.sigma), floats, ctx)
    above, below = np.max(sizes, axis=0) != 0
    return int(above) - int(below)


def _sizes(context: Any, y: Array, sigma: Array) -> Array:
    """The largest |u0| on a line where the only argument is positive, and where it is not."""
    rule, initial = context
    axis = jnp.asarray(rule.axis)

    def size(z: Array) -> Array:
        x = y + sigma * z * axis
        side = rule.kinks(x)[0] > 0
        return jnp.where(jnp.stack([side, ~side]), jnp.abs(initial(x)), 0.0)

    z = jnp.linspace(-_REACHES[-1], _REACHES[-1], _MANY_NODES)
    return jnp.max(jax.vmap(size)(z), axis=0)


def _examine_line(context: Any, y: Array, sigma: Array) -> tuple[Array, ...]:
    """Integrals with `_NODES` and `_MANY_NODES` nodes, and the roots on one line."""
    rule, initial, diffusion = context
    axis = jnp.asarray(rule.axis)

    def value(z: Array) -> Array:
        return initial(y + sigma * z * axis)

    def integral(nodes: int) -> Array:
        at, weights = line_quadrature(replace(rule, nodes=nodes), roots)
        return weights @ jax.vmap(value)(at)

    roots = find_roots(rule, y, sigma)
    far = replace(rule, reach=_REACHES[-1])  # the reference goes as far as any
    values = [integral(nodes) for nodes in _NODES]
    values.append(_integral(far, initial, y, sigma, 2 * _MANY_NODES, _MANY_CELLS))

    def change(z: Array, distance: float) -> Array:
        return jnp.abs(value(z - distance) - value(z + distance))

    # If u0 is continuous, the change falls with the distance.
    far_change, near = (jax.vmap(lambda z, h=h: change(z, h))(roots.z) for h in (1e-6, 1e-8))
    cosines = jax.vmap(lambda z, kink: _cosine(rule, diffusion, y + sigma * z * axis, kink))(
        roots.z, roots.kink
    )
    weight = jnp.where(roots.exists, normal_density(roots.z), 0.0)
    jump = jnp.where(near > 0.5 * far_change, near, 0.0)
    return jnp.stack(values), jump, cosines, weight


def _cosine(rule: PreIntegration, diffusion: Diffusion, x: Array, kink: Array) -> Array:
    """|cos| of the angle between the line and the normal of a kink at x, in whitened space."""
    normal, across = root_normal(rule, diffusion, kink, x)
    along = jnp.abs(jnp.asarray(rule.axis) @ normal)
    return along / jnp.sqrt(along**2 + jnp.maximum(normal @ across, 0.0) + 1e-300)
