"""Where a value comes from: the initial condition, the source by time lag, and the features that carry it.

The mild formulation splits the true value, u(t, x) = E[u0(X_t)] + ∫_0^t E[F(t - lag, X_lag)] d lag, and the parts are estimated by Monte Carlo,
each with its standard error. The network's own parts, Σ w_j φ_j over each kind of feature, need not be the same: trained weights may let
features of one kind do the work of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from heatnets.certify.error_equation import NetworkEvaluator, allowance, combined
from heatnets.pde.canonical import CanonicalProblem

_BINS = 8


class Part(NamedTuple):
    """A part of the value, and its standard error."""

    value: float
    error: float


class Influence(NamedTuple):
    """One feature: its kind ("initial" or "source"), its number there, what it adds to the value, its weight at this time."""

    kind: str
    number: int
    adds: float
    weight: float


@dataclass(frozen=True)
class Explanation:
    """What `solution.explain` found at one point."""

    t: float
    x: np.ndarray
    value: float
    initial: Part
    source: Part
    lags: np.ndarray  # edges of the intervals of lag, from 0 to t
    by_lag: tuple[Part, ...]
    network: dict[str, float]  # the network's own parts
    contributions: dict[str, np.ndarray]  # w_j φ_j of each kind
    weights: dict[str, np.ndarray]  # w_j at this time, of each kind
    effective: float
    influential: tuple[Influence, ...]
    samples: int

    def seen(self, t: float, x: np.ndarray, lags: np.ndarray, unit: float) -> Explanation:
        """The same in the user's times, places and values."""

        def part(p: Part) -> Part:
            return Part(unit * p.value, unit * p.error)

        return replace(
            self, t=t, x=x, lags=lags, value=unit * self.value, initial=part(self.initial), source=part(self.source),
            by_lag=tuple(map(part, self.by_lag)), network={k: unit * v for k, v in self.network.items()},
            contributions={k: unit * c for k, c in self.contributions.items()},
            influential=tuple(i._replace(adds=unit * i.adds) for i in self.influential),
        )  # fmt: skip

    def __str__(self) -> str:
        width = max(abs(p.value) for p in (self.initial, self.source, *self.by_lag)) or 1.0

        def line(name: str, part: Part) -> str:
            bar = "█" * round(24 * abs(part.value) / width)
            return f"  {name:26} {part.value:12.5g} ± {part.error:<8.2g} {'-' if part.value < 0 else '+'}{bar}"

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
                f"  {kind:26} {total:12.5g}   {len(w)} features, weights {np.min(w):.3g} to {np.max(w):.3g}; 1/M would be {1 / len(w):.3g}"
            )
        lines.append(
            f"  effective features         {self.effective:12.3g}   of {sum(map(len, self.weights.values()))}"
        )
        size = sum(float(np.sum(np.abs(c))) for c in self.contributions.values())
        lines.append(
            f"  cancellation               {size / (abs(self.value) or 1.0):12.3g}   Σ |w_j φ_j| over |u|: rounding errors are larger by this factor"
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
    """The parts of u(t, x); `terms` are weights at time t and values φ_j(t, x) of each kind of feature."""
    contributions = {kind: w * phi for kind, (w, phi) in terms.items()}
    everything = np.concatenate(list(contributions.values()))
    size, square = float(np.sum(np.abs(everything))), float(np.sum(everything**2))
    order = [(kind, int(j)) for kind, c in contributions.items() for j in range(len(c))]
    order.sort(key=lambda kj: -abs(contributions[kj[0]][kj[1]]))
    influential = tuple(
        Influence(k, j, float(contributions[k][j]), float(terms[k][0][j])) for k, j in order[:5]
    )
    initial, by_lag = _parts(problem, u, t, x, max(samples // 2, 2), rng)
    source = Part(sum(p.value for p in by_lag), float(np.sqrt(sum(p.error**2 for p in by_lag))))
    return Explanation(
        t, x, float(np.sum(everything)), initial, source, np.linspace(0, t, len(by_lag) + 1) if by_lag else np.zeros(0), tuple(by_lag),
        {kind: float(np.sum(c)) for kind, c in contributions.items()}, contributions, {kind: w for kind, (w, _) in terms.items()},
        size**2 / square if square else 0.0, influential, 2 * max(samples // 2, 2),
    )  # fmt: skip


def _parts(
    problem: CanonicalProblem, u: NetworkEvaluator, t: float, x: np.ndarray, pairs: int, rng: Any
) -> tuple[Part, list[Part]]:
    """E[u0(X_t)], and E[F] over intervals of lag, from antithetic pairs."""

    def mean(lag: np.ndarray, of: Callable[[np.ndarray], np.ndarray], length: float = 1.0) -> Part:
        """The mean of a function of places at the ends of paths, weighted, from antithetic pairs; what half as many steps change counts as error."""
        noise, found = problem.paths.draw(rng, (pairs,), problem.dim), []
        for factor, level, own in problem.paths.levels(noise):
            ways = [
                level.go(np.full(pairs, t), np.broadcast_to(x, (pairs, len(x))), lag, sign * own)
                for sign in (1.0, -1.0)
            ]
            values = of(np.concatenate([way.place for way in ways]))
            found.append(
                (
                    factor,
                    0.5
                    * length
                    * (ways[0].weight * values[:pairs] + ways[1].weight * values[pairs:]),
                )
            )
        pair, change = combined(found)
        return Part(
            float(pair.mean()),
            float(pair.std(ddof=1) / np.sqrt(pairs) + allowance(change.mean(axis=0))),
        )

    initial = mean(np.full(pairs, t), u.initial)
    if not problem.has_source or t == 0:
        return initial, []
    found = []
    for k in range(_BINS):
        lag = t * (k + rng.random(pairs)) / _BINS
        found.append(mean(lag, partial(u.source, np.tile(t - lag, 2)), t / _BINS))
    return initial, found
