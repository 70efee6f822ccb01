"""The two feature families of the paper: importance sampling and transformed Gaussian kernels.

To add a family, subclass `Family` and add an instance to `FAMILIES`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jax import device_put

from heatnets._core import streams
from heatnets._core.errors import (
    InputError,
    NumericalError,
    check_choice,
    check_fraction,
    check_positive,
    short_repr,
)
from heatnets.features.designs import Design, checked_draw
from heatnets.features.features import (
    Antithetic,
    Feature,
    Transported,
    TransportedInitial,
    TransportedReaction,
    TransportedSource,
)
from heatnets.features.kernels import KernelSource, LagTransform
from heatnets.pde.canonical import CanonicalProblem


@dataclass(frozen=True)
class Density:
    """A sampling density ψ that replaces uniform draws; features are then divided by ψ.

    Args:
        draw: `draw(rng, n)` returns n points as rows, shape (n, k), drawn with the NumPy
            generator `rng`.
        pdf: `pdf(points)` returns their densities, shape (n,), all > 0.
    """

    draw: Callable[[np.random.Generator, int], np.ndarray]
    pdf: Callable[[np.ndarray], np.ndarray]

    def points(
        self, count: int, width: int, seed: int, stream: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw points, shape (count, width); return them and the log of their density, (count,)."""
        points = np.asarray(self.draw(streams.generator(seed, stream), count), np.float64)
        if points.shape != (count, width) or not np.all(np.isfinite(points)):
            raise InputError(
                f"`Density.draw` must return finite points of shape ({count}, {width}); "
                f"got shape {points.shape}."
            )
        pdf = np.asarray(self.pdf(points), np.float64)
        if pdf.shape != (count,) or not np.all(np.isfinite(pdf) & (pdf > 0)):
            raise InputError(
                f"`Density.pdf` must return {count} finite numbers > 0, one per drawn point; "
                f"got {short_repr(pdf)}"
                + (f" with {int(np.sum(~(pdf > 0)))} not > 0." if pdf.shape == (count,) else ".")
            )
        return points, np.log(pdf)


class Family(abc.ABC):
    """A method to draw features from the integrals of the mild (Duhamel) formula."""

    name: str

    @abc.abstractmethod
    def draw(
        self,
        problem: CanonicalProblem,
        counts: tuple[int, int],
        design: Design,
        seed: int,
        antithetic: bool = False,
    ) -> list[Feature]:
        """Draw blocks of features: `counts[0]` of the initial condition, `counts[1]` of the source.

        Args:
            problem: the problem in canonical form.
            counts: numbers of features (or of antithetic pairs).
            design: the direction design.
            seed: the seed of the solve.
            antithetic: if True, the features are antithetic pairs.

        Returns:
            One block per kind of feature, with a leading axis over features.
        """

    def warnings_for(
        self, problem: CanonicalProblem, counts: tuple[int, int], enforce: str, collocation: str
    ) -> list[str]:
        """Warnings for these options with this family."""
        return []


@dataclass(frozen=True)
class ImportanceFamily(Family):
    """Importance sampling: points are drawn from the heat kernel.

    Args:
        fraction_density: density on (0, 1) of the time fraction r; the default is uniform.
    """

    fraction_density: Density | None = None
    name = "importance"

    def draw(
        self,
        problem: CanonicalProblem,
        counts: tuple[int, int],
        design: Design,
        seed: int,
        antithetic: bool = False,
    ) -> list[Feature]:
        reacts = problem.reaction_flow is not None
        s, eta = _draw_noise(problem, design, counts[0], int(reacts), seed, "initial features")
        r, xi = _draw_noise(problem, design, counts[1], 1, seed, "source features")
        coefficient = np.ones(counts[1])
        if self.fraction_density is not None:
            r, log_pdf = self.fraction_density.points(counts[1], 1, seed, "fraction density")
            if not np.all((r > 0) & (r < 1)):
                raise InputError(
                    "`fraction_density` must draw time fractions inside (0, 1); some lie outside."
                )
            coefficient = np.exp(-log_pdf)
        ones = np.ones(counts[0])
        initial: Transported = TransportedInitial(*device_put((eta, ones)))
        if reacts:
            initial = TransportedReaction(*device_put((eta, s[:, 0], ones)))
        source = TransportedSource(*device_put((xi, r[:, 0], coefficient)))
        return [Antithetic(initial), Antithetic(source)] if antithetic else [initial, source]


_SHUFFLED = 64  # draws per shuffled block


def _draw_noise(
    problem: CanonicalProblem, design: Design, count: int, uniform: int, seed: int, stream: str
) -> tuple[np.ndarray, np.ndarray]:
    """Draw uniform numbers, (count, uniform), and the noise of `count` paths.

    The noise has shape (count, dim) with constant coefficients, else (count, steps, dim), with one
    draw of the design for each step.
    """
    paths, dim = problem.feature_paths, problem.dim
    uniforms, first_step = checked_draw(design, count, uniform, dim, seed, stream)
    *steps, _ = paths.noise_shape(dim)
    if not steps:
        return uniforms, paths.scale_noise(first_step)
    # Sequences of one design resemble each other (radii, Sobol points). Therefore each step
    # permutes its own sequence, in blocks of 64, so that more draws do not change the first ones.
    padded_count, later_steps = -(-count // _SHUFFLED) * _SHUFFLED, []
    for k in range(1, steps[0]):
        rng = streams.generator(seed, f"{stream}, order of step {k}")
        order = np.concatenate(
            [i + rng.permutation(_SHUFFLED) for i in range(0, padded_count, _SHUFFLED)]
            or [np.zeros(0, int)]
        )
        _, normals = checked_draw(design, padded_count, 0, dim, seed, f"{stream}, step {k}")
        later_steps.append(normals[order[:count]])
    return uniforms, paths.scale_noise(np.stack([first_step, *later_steps], axis=1))


@dataclass(frozen=True)
class GaussianFamily(Family):
    """Transformed Gaussian kernels, drawn uniformly on [-A, A]^d and on the transformed lags.

    Args:
        half_width: A, the half width of the box of y and z.
        shortest_lag: g_min as a fraction of the horizon: for d >= 2 the lag integral starts at
            g_min; the part left out is at most g_min sup|F|.
        initial_density: density of y on R^d; the default is uniform.
        source_density: density of (lag, z) on (0, T] x R^d, with rows (lag, z_1, ..., z_d); the
            default is uniform.
    """

    half_width: float = 5.0
    shortest_lag: float = 1e-3
    initial_density: Density | None = None
    source_density: Density | None = None
    name = "gaussian"

    def __post_init__(self) -> None:
        check_positive("half_width", self.half_width, "It is A in [-A, A]^d.")
        check_fraction("shortest_lag", self.shortest_lag, "It is a fraction of the horizon.")

    def draw(
        self,
        problem: CanonicalProblem,
        counts: tuple[int, int],
        design: Design,
        seed: int,
        antithetic: bool = False,
    ) -> list[Feature]:
        if antithetic:
            raise InputError(
                "`antithetic` pairs directions, which Gaussian kernels do not have. "
                'Use family="importance", or antithetic=False.'
            )
        d, A, D = problem.dim, self.half_width, problem.diffusion.scalar
        if D is None:
            raise InputError(
                '`family="gaussian"` needs a scalar diffusion. Use family="importance".'
            )
        if self.initial_density is None:
            unit, _ = checked_draw(design, counts[0], d, 0, seed, "initial features")
            y, log_pdf = A * (2 * unit - 1), np.zeros(counts[0])
        else:
            y, log_pdf = self.initial_density.points(counts[0], d, seed, "initial density")
        log_c = -0.5 * d * np.log(np.pi) - np.sum(y**2, axis=1) - log_pdf
        if counts[0] and not np.any(np.exp(log_c)):
            raise NumericalError(
                f"every Gaussian kernel feature underflows to zero in {d} dimensions: e^-|y|² "
                f'with y in [-{A:g}, {A:g}]^{d}. Use family="importance", or give GaussianFamily '
                "an `initial_density` that draws y where the kernel is."
            )
        initial = TransportedInitial(*device_put((np.sqrt(2.0 * D) * y, np.exp(log_c))))

        if self.source_density is None:
            unit, _ = checked_draw(design, counts[1], 1 + d, 0, seed, "source features")
            lags = LagTransform(d, problem.horizon, self.shortest_lag * problem.horizon)
            lag, z = lags.lag(unit[:, 0]), A * (2 * unit[:, 1:] - 1)
            log_kernel = np.full(counts[1], lags.log_constant(D))
        else:
            rows, log_pdf = self.source_density.points(counts[1], 1 + d, seed, "source density")
            lag, z = rows[:, 0], rows[:, 1:]
            if not np.all((lag > 0) & (lag <= problem.horizon)):
                raise InputError(
                    "`source_density` must draw lags in (0, horizon] in its first column; "
                    f"horizon = {problem.horizon:g}."
                )
            log_kernel = -0.5 * d * np.log(4 * np.pi * D * lag) - log_pdf
        return [initial, KernelSource(*device_put((z, lag, log_kernel)))]

    def warnings_for(
        self, problem: CanonicalProblem, counts: tuple[int, int], enforce: str, collocation: str
    ) -> list[str]:
        messages = []
        has_source_features = problem.feature_source is not None and counts[1]
        if has_source_features and enforce == "equation":
            messages.append(
                "Gaussian kernel source features jump in t where their indicator switches on, and "
                "equation rows cannot see a jump: a solution that needs the source features can be "
                'wrong by tens of per cent. Use family="importance", or enforce="mild" with '
                'collocation="uniform".'
            )
        if has_source_features and enforce == "mild" and collocation == "grid":
            messages.append(
                "Gaussian kernel source features jump in t: mild rows on a grid of times leave the "
                "fit free between the lines, where it was wrong by a factor of two in trials. "
                'Use collocation="uniform".'
            )
        if problem.dim >= 3 and (
            self.initial_density is None or (counts[1] and self.source_density is None)
        ):
            messages.append(
                f"Gaussian kernels drawn uniformly on [-{self.half_width:g}, {self.half_width:g}]^"
                f"{problem.dim} hardly ever land where the kernel is: from d = 3 the family is "
                'kept for fidelity only. Use family="importance".'
            )
        return messages


FAMILIES: dict[str, Family] = {
    family.name: family for family in (ImportanceFamily(), GaussianFamily())
}


def family(value: str | Family) -> Family:
    """The family with a name, or `value` itself if it is a `Family`."""
    return value if isinstance(value, Family) else FAMILIES[check_choice("family", value, FAMILIES)]
