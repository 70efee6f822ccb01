"""Driver of adaptive solves: rounds of growth, with checkpoints, until a stopping rule applies.

The rows are of one of two types, each a subclass of `Growth`: equation rows (`adaptive`) and mild
rows (`adaptive_mild`).
"""

from __future__ import annotations

import abc
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from heatnets._core.execution import Summary
from heatnets.features.features import Equation, Feature
from heatnets.fit.iteration import CandidateFit
from heatnets.pde.canonical import CanonicalProblem
from heatnets.solution import UNSOLVED, Solution
from heatnets.solvers.checkpoint import Checkpoint
from heatnets.solvers.run import Round, Run, StopReason
from heatnets.solvers.stopping import Rule, first_reason


def feature_kinds(problem: CanonicalProblem) -> list[int]:
    """Kinds of features that are useful: 0 from the initial condition, 1 from the source."""
    has_initial = not problem.zero_initial or problem.reaction_flow is not None
    is_useful = (has_initial, problem.feature_source is not None)
    return [kind for kind, useful in enumerate(is_useful) if useful] or [0]


@dataclass
class GrowthState:
    """State of an adaptive solve, without the matrix entries (they can be recomputed)."""

    history: list[Round] = field(default_factory=list)
    best: CandidateFit | None = None
    spent: dict[str, float] = field(default_factory=dict)  # seconds per phase, last round
    clock: dict[str, float] = field(default_factory=dict)  # seconds per phase, all rounds
    warnings: list[str] = field(default_factory=list)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Weights of fits and other arrays, for the array part of a checkpoint."""
        return {
            name: value.weights if isinstance(value, CandidateFit) else value
            for name, value in vars(self).items()
            if isinstance(value, CandidateFit | np.ndarray)
        }


class Growth(abc.ABC):
    """An adaptive solve: its state, and what depends on the type of the rows."""

    State: ClassVar[type[Any]]  # a subclass of `GrowthState`
    rules: ClassVar[Sequence[Rule]]  # when it ends
    state: Any
    data: Equation

    def __init__(self, run: Run) -> None:
        self.run, run.started = run, time.perf_counter()
        self.checkpoint = Checkpoint(run)
        stored = self.checkpoint.find(self.State)
        self.is_resumed = stored is not None
        self.state = stored if self.is_resumed else self.State()

    @abc.abstractmethod
    def repeat_rounds(self) -> None:
        """Recompute what the state of a checkpoint does not hold."""

    @abc.abstractmethod
    def make_round(self, label: str) -> Round:
        """One round: more features and rows, and a fit. Updates the state, except `history`."""

    @abc.abstractmethod
    def meets_tolerance(self, tol: float) -> bool:
        """Whether the best fit meets the tolerance."""

    @abc.abstractmethod
    def plan_round(self) -> str:
        """Choose the sizes of the next round. Why there is no time or memory for it, else ""."""

    @abc.abstractmethod
    def finish(self, why: str) -> Solution:
        """The final check and the solution; `why` is the rule that stopped the growth."""

    @property
    def error_floor(self) -> float:
        """A relative error that no fit goes below: twice that of integrals inside features."""
        rule = self.run.problem.preintegration
        return 0.0 if rule is None else 2 * rule.relative_error

    @property
    def best(self) -> CandidateFit:
        """The best fit so far."""
        assert self.state.best is not None
        return self.state.best

    def grow(self) -> Solution:
        """Make rounds until a stopping rule applies."""
        run, state = self.run, self.state
        resumed = self.is_resumed
        if resumed:
            run.started = min(run.started, time.perf_counter() - state.history[-1].seconds)
            with run.clock.phase("assembly"):
                self.repeat_rounds()
            run.clock.add(state.clock)
            run.log.restore(state.warnings)
            run.ctx.progress(Summary(f"goes on after {state.history[-1]}"), 1, 1)
        why = ""
        while not why:
            if not resumed:
                self._record_round()
            resumed = False
            why = first_reason(self.rules, self) or self.plan_round()
        return self.finish(why)

    def _record_round(self) -> None:
        """Make a round, report it and write the checkpoint."""
        run, state = self.run, self.state
        label, before = f"round {len(state.history)}", dict(run.clock.seconds)
        state.history.append(self.make_round(label))
        run.ctx.progress(Summary(f"{label}: {state.history[-1]}"), 1, 1)
        state.clock, state.warnings = dict(run.clock.seconds), list(run.log.messages)
        state.spent = {
            phase: seconds - before.get(phase, 0.0) for phase, seconds in state.clock.items()
        }
        self.checkpoint.keep(state)

    def time_limit(self, needed: float) -> str:
        """Message if a round of `needed` seconds would end after the budget, else ""."""
        elapsed, seconds = self.run.elapsed, self.run.options.seconds
        if elapsed + needed < seconds:
            return ""
        return (
            f"the next round would take about {needed:.2g} s, "
            f"and {elapsed:.2g} of {seconds:g} s are spent"
        )

    def build_solution(
        self, fit: CandidateFit, blocks: list[Feature], ending: StopReason, **facts: Any
    ) -> Solution:
        """The solution; warns (raises, if the source depends on u) if its error is too large.

        `facts` are further arguments of `Run.solution`.
        """
        run, error = self.run, fit.error
        estimate = f"the error is estimated at {error:.2g} of the solution's size"
        if not error <= UNSOLVED:
            run.iteration.reject(estimate, run.problem)
            if not np.isfinite(error):
                estimate = f"the error cannot be estimated ({'; '.join(ending.unknown)})"
            run.log.warn(
                f"not solved: {estimate}. Give more `seconds`, or a smaller region or horizon; "
                "data that grow too fast at infinity cannot be met at all."
            )
        elif ending.met is False:
            run.log.warn(
                f"the tolerance {run.options.tol:g} was not met: the error is estimated at "
                f"{error:.2g}. Growth ended as {ending.why}; the best fit found is returned. "
                "More `seconds`, a smaller region or a shorter horizon may help."
            )
        history = self.state.history
        return run.solution(
            fit, self.data, blocks, error=error, ending=ending, history=history, **facts
        )
