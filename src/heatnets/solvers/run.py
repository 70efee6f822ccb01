"""One call of `hn.solve`, what is known at its end (`SolveStats`), and the solution made of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from heatnets._core import streams
from heatnets._core.errors import WarningLog
from heatnets._core.execution import ExecutionContext, peak_bytes
from heatnets._core.timing import PhaseTimer
from heatnets.features.designs import Design
from heatnets.features.features import Equation, Feature
from heatnets.fit.iteration import ITERATIONS, CandidateFit, Direct
from heatnets.pde.canonical import CanonicalProblem
from heatnets.solution import Solution
from heatnets.solvers.options import SolveOptions


class Round(NamedTuple):
    """One round of the adaptive solver, as listed in `stats["history"]`."""

    features: tuple[int, int]  # from the initial condition, from the source
    rows: int
    time_degree: int
    make: str  # names of the designs whose features were doubled in this round
    estimated_error: float
    seconds: float  # since the start of the solve

    def __str__(self) -> str:
        return (
            f"{self.features[0]} + {self.features[1]} features ({self.make}), {self.rows} rows, "
            f"degree {self.time_degree} in time: "
            f"estimated error {self.estimated_error:.1e}, {self.seconds:.1f} s"
        )


class StopReason(NamedTuple):
    """How an adaptive solve ended."""

    why: str | None = None  # the rule that stopped it
    met: bool | None = None  # whether the tolerance is met; None without a tolerance
    unknown: tuple[str, ...] = ()  # why nothing is known of the error, if so
    check: Mapping[str, Any] = MappingProxyType({})  # results of the final check


@dataclass(frozen=True)
class SolveStats:
    """Facts about a solve. `solution.stats` is a read-only mapping from their names."""

    family: str
    features: tuple[int, int]  # from the initial condition, from the source
    rows: tuple[int, int]  # of the equation (or mild rows), of the initial condition
    design: str
    antithetic: bool
    time_degree: int
    collocation: str
    enforce: str
    solver: str
    rcond: float | None
    rank: int
    condition: float | None
    ridge: float
    initial_rows: str
    initial_weight: float | None
    residual_train: float
    residual_held_out: float | None
    laplacian: Mapping[str, str]  # method for the second derivatives of each function
    laplacian_skipped: Mapping[str, tuple[str, ...]]  # methods that failed a test, with reasons
    iterations: tuple[tuple[float, ...], ...]  # relative changes by Newton or Picard steps
    seconds: Mapping[str, float]  # per phase
    peak_bytes: int
    device: str
    seed: int
    estimated_error: float | None
    tolerance_met: bool | None
    stopped: str | None
    check: Mapping[str, Any]  # results of the final check
    history: tuple[Round, ...]
    warnings: tuple[str, ...]
    mild_noise: float | None = None  # root mean square of the noise of mild rows, relative


@dataclass
class Run:
    """One call of `hn.solve`: the problem, the options, where it runs, warnings and times."""

    problem: CanonicalProblem
    options: SolveOptions
    ctx: ExecutionContext
    lasting: ExecutionContext | None = None  # of the solution; None for `ctx`
    log: WarningLog = field(default_factory=WarningLog)
    clock: PhaseTimer = field(default_factory=PhaseTimer)
    started: float = field(default_factory=time.perf_counter)

    @property
    def iteration(self) -> Direct:
        """What is done because the source depends on u."""
        return ITERATIONS[self.options.iteration]

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    def rng(self, stream: str) -> np.random.Generator:
        """The random numbers of a named stream."""
        return streams.generator(self.options.seed, stream)

    def draw(self, counts: tuple[int, int], design: Design) -> list[Feature]:
        """Draw features from the initial condition and from the source."""
        options = self.options
        return options.family.draw(self.problem, counts, design, options.seed, options.antithetic)

    def solution(
        self,
        fit: CandidateFit,
        data: Equation,
        blocks: list[Feature],
        *,
        features: tuple[int, int],
        initial_rows: int = 0,
        skipped: Mapping[str, list[str]] | None = None,
        iterations: list[list[float]] | None = None,
        error: float | None = None,
        ending: StopReason = StopReason(),  # noqa: B008
        history: list[Round] | None = None,
    ) -> Solution:
        """The solution of a fit. `error` is the estimated error, None if it was not estimated."""
        options, solved = self.options, fit.solved
        is_mild_growth = options.features is None and options.enforce == "mild"
        stats = SolveStats(
            family=options.family.name,
            features=features,
            rows=(fit.rows, initial_rows),
            design=" + ".join(design.name for design in options.directions),
            antithetic=options.antithetic,
            time_degree=fit.degree,
            collocation=options.collocation,
            enforce=options.enforce or "equation",
            solver=solved.solver,
            rcond=solved.rcond,
            rank=solved.rank,
            condition=solved.condition_number,
            ridge=solved.ridge,
            initial_rows=options.initial_rows,
            initial_weight=options.initial_weight,
            residual_train=fit.training_residual,
            residual_held_out=fit.validation_residual,
            laplacian={} if is_mild_growth else data.laplacian_methods,
            laplacian_skipped={name: tuple(why) for name, why in (skipped or {}).items()},
            iterations=tuple(map(tuple, iterations or ())),
            seconds=MappingProxyType(self.clock.seconds),
            peak_bytes=peak_bytes(self.ctx.device),
            device=self.ctx.device.device_kind,
            seed=options.seed,
            estimated_error=error,
            tolerance_met=ending.met,
            stopped=ending.why,
            check=MappingProxyType(ending.check),
            history=tuple(history or ()),
            warnings=(*self.problem.warnings, *self.log.messages),
            mild_noise=fit.noise,
        )
        weights = jnp.asarray(fit.solved.weights)
        return Solution(self.problem, data, blocks, weights, self.lasting or self.ctx, vars(stats))
