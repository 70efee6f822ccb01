"""Where a value comes from: the initial condition, the source by time lag, and the features.

    u(t, x) = E[u0(X_t)] + ∫_0^t E[F(t - lag, X_lag)] d lag    (mild formulation)
Both parts are estimated by Monte Carlo, with standard errors.
"""

# The parts of the network, Σ w_j φ_j over each kind of feature, need not be the same as those of
# the true value: with trained weights, features of one kind may do the work of the other.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from heatnets.certify.evaluator import NetworkEvaluator
from heatnets.certify.path_sampling import Starts, antithetic_mean, extrapolate, step_bias_bound
from heatnets.pde.paths import PathSimulator

_BINS = 8  # intervals of lag


class Part(NamedTuple):
    """A part of the value u(t, x), and its standard error."""

    value: float
    error: float


class Influence(NamedTuple):
    """One feature of the network.

    Attributes:
        kind: "initial" or "source".
        number: its index among the features of this kind.
        adds: its part w_j φ_j(t, x) of the value.
        weight: its weight w_j at this time.
    """

    kind: str
    number: int
    adds: float
    weight: float


@dataclass(frozen=True)
class Explanation:
    """The parts of the value at one point, from `Solution.explain`.

    A `Part` is a pair (value, error): a Monte Carlo estimate and its standard error. Dictionaries
    have the keys "initial" and "source", where the network has such features.

    Attributes:
        t: the time.
        x: the point, (dim,).
        value: the value of the network.
        initial: the part of the initial condition, E[u0(X_t)].
        source: the part of the source.
        lags: edges of the intervals of lag, from 0 to t, (bins + 1,); empty without a source.
        by_lag: the part of the source for each interval of lag.
        network: the parts of the network, Σ w_j φ_j of each kind of feature.
        contributions: w_j φ_j of each feature, (features of the kind,).
        weights: w_j of each feature at this time, (features of the kind,).
        effective: the effective number of features, (Σ |w_j φ_j|)² / Σ (w_j φ_j)².
        influential: the five features with the largest |w_j φ_j|.
        samples: the number of Monte Carlo samples.
    """

    t: float
    x: np.ndarray
    value: float
    initial: Part
    source: Part
    lags: np.ndarray
    by_lag: tuple[Part, ...]
    network: dict[str, float]
    contributions: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]
    effective: float
    influential: tuple[Influence, ...]
    samples: int

    def __str__(self) -> str:
        width = max(abs(p.value) for p in (self.initial, self.source, *self.by_lag)) or 1.0

        def line(name: str, part: Part) -> str:
            bar = "█" * round(24 * abs(part.value) / width)
            sign = "-" if part.value < 0 else "+"
            return f"  {name:26} {part.value:12.5g} ± {part.error:<8.2g} {sign}{bar}"

        lines = [
            f"u({self.t:g}, x) = {self.value:.8g}",
            f"by Monte Carlo ({self.samples} samples, standard errors):",
        ]
        lines.append(line("initial condition", self.initial))
        if self.by_lag:
            lines.append(line("source", self.source))
            for low, high, part in zip(self.lags[:-1], self.lags[1:], self.by_lag, strict=True):
                lines.append(line(f"  lag {low:.3g} to {high:.3g}", part))
        lines.append("by the network:")
        for kind, total in self.network.items():
            w = self.weights[kind]
            lines.append(
                f"  {kind:26} {total:12.5g}   {len(w)} features, "
                f"weights {np.min(w):.3g} to {np.max(w):.3g}; 1/M would be {1 / len(w):.3g}"
            )
        features = sum(map(len, self.weights.values()))
        lines.append(f"  effective features         {self.effective:12.3g}   of {features}")
        size = sum(float(np.sum(np.abs(c))) for c in self.contributions.values())
        lines.append(
            f"  cancellation               {size / (abs(self.value) or 1.0):12.3g}   "
            "Σ |w_j φ_j| over |u|: rounding errors are larger by this factor"
        )
        lines.append("most influential:")
        lines += [
            f"  {i.kind:8} {i.number:5}   adds {i.adds:12.5g}   weight {i.weight:.3g}"
            for i in self.influential
        ]
        return "\n".join(lines)


def explain(
    u: NetworkEvaluator,
    terms: dict[str, tuple[np.ndarray, np.ndarray]],
    point: tuple[float, np.ndarray],
    unit: float,
    samples: int,
    rng: np.random.Generator,
) -> Explanation:
    """Explain the value at one point.

    Args:
        u: the network and the data.
        terms: for each kind of feature the weights at time t and the values φ_j(t, x), (M,) each.
        point: t and x (dim,), canonical; those of the result and its lags are canonical, too.
        unit: factor from values of the canonical problem to the user's.
        samples: Monte Carlo samples for each part, in antithetic pairs.
        rng: generator of the random numbers.
    """
    contributions = {kind: w * phi for kind, (w, phi) in terms.items()}
    everything = np.concatenate(list(contributions.values()))
    size, square = float(np.sum(np.abs(everything))), float(np.sum(everything**2))
    features = [
        Influence(kind, j, unit * float(c), float(terms[kind][0][j]))
        for kind, parts in contributions.items()
        for j, c in enumerate(parts)
    ]
    pairs = max(samples // 2, 2)
    initial, by_lag = _monte_carlo_parts(u, *point, pairs, rng)
    source = Part(sum(p.value for p in by_lag), float(np.sqrt(sum(p.error**2 for p in by_lag))))

    def scale(part: Part) -> Part:
        return Part(unit * part.value, unit * part.error)

    return Explanation(
        *point,
        value=unit * float(np.sum(everything)),
        initial=scale(initial),
        source=scale(source),
        lags=np.linspace(0, point[0], len(by_lag) + 1) if by_lag else np.zeros(0),
        by_lag=tuple(map(scale, by_lag)),
        network={kind: unit * float(np.sum(c)) for kind, c in contributions.items()},
        contributions={kind: unit * c for kind, c in contributions.items()},
        weights={kind: w for kind, (w, _) in terms.items()},
        effective=size**2 / square if square else 0.0,
        influential=tuple(sorted(features, key=lambda f: -abs(f.adds))[:5]),
        samples=2 * pairs,
    )


def _monte_carlo_parts(
    u: NetworkEvaluator, t: float, x: np.ndarray, pairs: int, rng: Any
) -> tuple[Part, list[Part]]:
    """E[u0(X_t)], and the integrals of E[F] over intervals of lag, from antithetic pairs."""
    problem = u.canonical
    starts = Starts(np.full(pairs, t), np.broadcast_to(x, (pairs, len(x))))

    def mean(function: Callable[..., np.ndarray], lag: np.ndarray, length: float = 1.0) -> Part:
        """`length` times the weighted mean of a function over the ends of paths.

        The change with half as many steps of the paths counts as error.
        """

        def sample(level: PathSimulator, noise: np.ndarray) -> tuple[np.ndarray, None]:
            (value,) = antithetic_mean(function, level, starts, lag, noise)
            return length * value, None

        noise = problem.paths.sample_noise(rng, (pairs,), problem.dim)
        samples, steps, _ = extrapolate(problem.paths, noise, sample)
        error = samples.std(ddof=1) / np.sqrt(pairs)
        if steps is not None:
            error += step_bias_bound(steps.mean(axis=0))
        return Part(float(samples.mean()), float(error))

    initial = mean(u.initial, np.full(pairs, t))
    if not problem.has_source or t == 0:
        return initial, []
    by_lag = []
    for k in range(_BINS):
        lag = t * (k + rng.random(pairs)) / _BINS
        by_lag.append(mean(u.source_at_network, lag, t / _BINS))
    return initial, by_lag
