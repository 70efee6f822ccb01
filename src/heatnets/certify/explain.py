"""Where a value comes from: the initial condition, the source by time lag, and the features.

    u(t, x) = E[u0(X_t)] + ∫_0^t E[F(t - lag, X_lag)] d lag    (mild formulation)
Both parts are estimated by Monte Carlo, with standard errors.
"""

# The parts of the network, Σ w_j φ_j over each kind of feature, need not be the same as those of
# the true value: with trained weights, features of one kind may do the work of the other.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from heatnets.certify.error_equation import NetworkEvaluator, richardson, step_bias_bound
from heatnets.pde.canonical import CanonicalProblem

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

    def in_user_units(self, t: float, x: np.ndarray, lags: np.ndarray, unit: float) -> Explanation:
        """The explanation at the user's time, point and lags, with values times `unit`."""

        def scale(part: Part) -> Part:
            return Part(unit * part.value, unit * part.error)

        return replace(
            self,
            t=t,
            x=x,
            lags=lags,
            value=unit * self.value,
            initial=scale(self.initial),
            source=scale(self.source),
            by_lag=tuple(map(scale, self.by_lag)),
            network={k: unit * v for k, v in self.network.items()},
            contributions={k: unit * c for k, c in self.contributions.items()},
            influential=tuple(i._replace(adds=unit * i.adds) for i in self.influential),
        )

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
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    terms: dict[str, tuple[np.ndarray, np.ndarray]],
    t: float,
    x: np.ndarray,
    samples: int,
    rng: np.random.Generator,
) -> Explanation:
    """Explain the value at one point.

    Args:
        problem: the canonical problem.
        u: functions of the network and of the data.
        terms: for each kind of feature the weights at time t and the values φ_j(t, x), (M,) each.
        t: the time.
        x: the point, (dim,).
        samples: Monte Carlo samples for each part, in antithetic pairs.
        rng: generator of the random numbers.
    """
    contributions = {kind: w * phi for kind, (w, phi) in terms.items()}
    everything = np.concatenate(list(contributions.values()))
    size, square = float(np.sum(np.abs(everything))), float(np.sum(everything**2))
    order = [(kind, int(j)) for kind, c in contributions.items() for j in range(len(c))]
    order.sort(key=lambda kj: -abs(contributions[kj[0]][kj[1]]))
    influential = tuple(
        Influence(k, j, float(contributions[k][j]), float(terms[k][0][j])) for k, j in order[:5]
    )
    pairs = max(samples // 2, 2)
    initial, by_lag = _monte_carlo_parts(problem, u, t, x, pairs, rng)
    source = Part(sum(p.value for p in by_lag), float(np.sqrt(sum(p.error**2 for p in by_lag))))
    return Explanation(
        t=t,
        x=x,
        value=float(np.sum(everything)),
        initial=initial,
        source=source,
        lags=np.linspace(0, t, len(by_lag) + 1) if by_lag else np.zeros(0),
        by_lag=tuple(by_lag),
        network={kind: float(np.sum(c)) for kind, c in contributions.items()},
        contributions=contributions,
        weights={kind: w for kind, (w, _) in terms.items()},
        effective=size**2 / square if square else 0.0,
        influential=influential,
        samples=2 * pairs,
    )


def _monte_carlo_parts(
    problem: CanonicalProblem, u: NetworkEvaluator, t: float, x: np.ndarray, pairs: int, rng: Any
) -> tuple[Part, list[Part]]:
    """E[u0(X_t)], and the integrals of E[F] over intervals of lag, from antithetic pairs."""

    def mean(
        lag: np.ndarray, function: Callable[[np.ndarray], np.ndarray], length: float = 1.0
    ) -> Part:
        """`length` times the weighted mean of a function of places at the ends of paths.

        The change with half as many steps of the paths counts as error.
        """
        noise, levels = problem.paths.draw(rng, (pairs,), problem.dim), []
        time, start = np.full(pairs, t), np.broadcast_to(x, (pairs, len(x)))
        for factor, level, level_noise in problem.paths.richardson_levels(noise):
            ends = [level.simulate(time, start, lag, sign * level_noise) for sign in (1.0, -1.0)]
            values = function(np.concatenate([end.position for end in ends]))
            total = ends[0].weight * values[:pairs] + ends[1].weight * values[pairs:]
            levels.append((factor, 0.5 * length * total))
        samples, changes = richardson(levels)
        noise_error = samples.std(ddof=1) / np.sqrt(pairs)
        return Part(
            float(samples.mean()), float(noise_error + step_bias_bound(changes.mean(axis=0)))
        )

    initial = mean(np.full(pairs, t), u.initial)
    if not problem.has_source or t == 0:
        return initial, []
    by_lag = []
    for k in range(_BINS):
        lag = t * (k + rng.random(pairs)) / _BINS
        by_lag.append(mean(lag, partial(u.source, np.tile(t - lag, 2)), t / _BINS))
    return initial, by_lag
