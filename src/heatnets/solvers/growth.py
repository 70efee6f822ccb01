"""Driver of adaptive solves: rounds of growth, with checkpoints, until a stopping rule applies.

The rows are of one of two types, each a subclass of `Growth`: equation rows (`adaptive`) and mild
rows (`adaptive_mild`).
"""

from __future__ import annotations

import abc
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from heatnets._core.execution import Summary
from heatnets.features.features import Equation, Feature
from heatnets.fit.iteration import CandidateFit
from heatnets.pde.canonical import CanonicalProblem
from heatnets.solution import UNSOLVED, Solution
from heatnets.solvers.checkpoint import Checkpoint
from heatnets.solvers.run import Round, Run, StopReason
from heatnets.solvers.stopping import Limit, Rule, first_reason


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


class _OutOfTime(Exception):
    """The time limit ended a round."""


class Growth(abc.ABC):
    """An adaptive solve: its state, and what depends on the type of the rows.

    What is computed depends on the problem, the options and the seed alone. The clock can only end
    the growth: between two rounds, or in a round, which is then given up.
    """

    State: ClassVar[type[Any]]  # a subclass of `GrowthState`
    rules: ClassVar[Sequence[Rule]]  # when it ends
    state: Any
    data: Equation

    def __init__(self, run: Run) -> None:
        self.run = run
        self._deadline = np.inf  # of the round that is made, on the clock of `run.elapsed`
        self._user_ctx = run.ctx
        run.ctx = replace(run.ctx, progress=self._report)
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
    def check_seconds(self) -> float:
        """Seconds that the final check of the best fit may take, from those of the last round."""

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
            with run.clock.phase("assembly"):
                self.repeat_rounds()
            # What is computed again does not count.
            run.started = time.perf_counter() - state.history[-1].seconds
            run.clock.add(state.clock)
            run.log.restore(state.warnings)
            last = state.history[-1]
            run.ctx.progress(Summary(f"goes on after {last}", last.estimated_error), 1, 1)
        why = ""
        while not why:
            if not resumed:
                try:
                    self._record_round()
                except _OutOfTime:
                    seconds, number = run.options.seconds, len(state.history)
                    why = Limit(f"`seconds` = {seconds:g} ended round {number}, which is given up")
                    break
                finally:
                    self._deadline = np.inf
            resumed = False
            why = first_reason(self.rules, self) or self.plan_round()
            # The first round is always made. Time for the final check must be left.
            # Several processes end between rounds only: their clocks differ.
            if run.ctx.processes.count == 1:
                self._deadline = run.options.seconds - self.check_seconds()
        self._deadline, run.ctx = np.inf, self._user_ctx
        return self.finish(why)

    def _report(self, phase: str, done: int, total: int) -> None:
        """Report progress to the user, and end a round at its deadline.

        A `Summary` comes when a round is complete: it is kept.
        """
        self._user_ctx.progress(phase, done, total)
        if self.run.elapsed > self._deadline and not isinstance(phase, Summary):
            raise _OutOfTime

    def _record_round(self) -> None:
        """Make a round, report it and write the checkpoint."""
        run, state = self.run, self.state
        label, before = f"round {len(state.history)}", dict(run.clock.seconds)
        run.ctx.progress(label, 0, 1)
        made = self.make_round(label)
        state.history.append(made)
        run.ctx.progress(Summary(f"{label}: {made}", made.estimated_error), 1, 1)
        state.clock, state.warnings = dict(run.clock.seconds), list(run.log.messages)
        state.spent = {
            phase: seconds - before.get(phase, 0.0) for phase, seconds in state.clock.items()
        }
        self.checkpoint.keep(state)

    def time_limit(self, needed: float) -> str:
        """Message if a round of `needed` seconds would end after the limit, else ""."""
        elapsed, seconds, message = self.run.elapsed, self.run.options.seconds, ""
        if not elapsed + needed + self.check_seconds() < seconds:
            enough = 1.2 * (elapsed + needed + self.check_seconds())
            message = (
                f"the next round would take about {needed:.2g} s, and {elapsed:.2g} of `seconds` = "
                f"{seconds:g} are spent (`seconds` = {enough:.0f} would do)"
            )
        return Limit(self.run.ctx.processes.from_first("time limit", message))

    def memory_limit(self, needed: int, processes: int | None = None) -> str:
        """Message if a round needs more bytes than there are, else "".

        `processes` is the number of processes that would have enough, if it is known.
        """
        if needed <= self.run.ctx.memory:
            return ""
        would_do = (
            "" if processes is None else f" ({processes} processes with as much each would do)"
        )
        return Limit(f"the next round would not fit into `memory`{would_do}")

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
            tol = run.options.tol or 0.0
            bound = ", but its upper bound (99 %) is above the tolerance" if error <= tol else ""
            run.log.warn(
                f"the tolerance {tol:g} was not met: the error is estimated at "
                f"{error:.2g}{bound}. Growth ended as {ending.why}; the best fit found is "
                "returned. More `seconds`, another `region` or a shorter horizon may help."
            )
        elif isinstance(ending.why, Limit) and run.options.tol is None:
            run.log.warn(
                f"growth ended before nothing was left to gain: {ending.why}. The error is "
                f"estimated at {error:.2g}. Raise the limit, or give the error that you need as "
                "`tol`."
            )
        history = self.state.history
        return run.solution(
            fit, self.data, blocks, error=error, ending=ending, history=history, **facts
        )
