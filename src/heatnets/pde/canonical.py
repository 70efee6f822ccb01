"""The problem that is solved: `Problem` in coordinates without constant drift, reaction or time reversal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from heatnets.pde.coefficients import CoefficientField
from heatnets.pde.diffusion import Diffusion
from heatnets.pde.function import Function
from heatnets.pde.nonlinearity import ChebyshevSource, FrozenSource, ReactionFlow, SemilinearSource
from heatnets.pde.paths import EulerPaths, ExactPaths, PathSimulator
from heatnets.pde.regions import Region
from heatnets.pde.transforms import TransformChain

FEATURE_STEPS = 2  # steps of the paths that features follow: they only shape the network


def path_simulator(
    diffusion: Diffusion, coefficients: CoefficientField | None, steps: int
) -> PathSimulator:
    """Exact paths where coefficients are constant, Euler steps where they vary."""
    return ExactPaths(diffusion) if coefficients is None else EulerPaths(coefficients, steps)


@dataclass(frozen=True, eq=False)
class CanonicalProblem:
    """v_s = div(A ∇v) + F(s, y, v, ∇v), v(0, y) = v0(y), for 0 <= s <= S.

    Drift, reaction and a diffusion that varies are in `coefficients`; everything constant has been
    transformed away. Built by `Problem.canonical`, changed by `dataclasses.replace`.
    """

    dim: int
    horizon: float
    initial: Function
    data_name: str  # "initial" or "terminal": the argument that the user gave
    source: Function | None  # F(s, y); where F depends on v, F at a guess of v
    nonlinear: SemilinearSource | None  # F, where it depends on v
    region: Region
    diffusion: Diffusion  # A; at the centre of the region where it varies
    coefficients: CoefficientField | None  # None where they are constant
    steps: int  # of the paths that validate an answer, where coefficients vary
    steps_given: bool  # by the user
    zero_initial: bool  # v0 is zero wherever it was evaluated
    warnings: tuple[str, ...]  # what the user was told of the statement
    outer_transform: TransformChain  # from the user's times, points and values to these
    u_range: tuple[float, float] = (0.0, 0.0)  # values of u for which a nonlinear F was examined
    source_has_kinks: bool = False  # in u
    flow_resolved: bool = True  # the ODE u' = F(u) from v0 is finite, and its steps converge
    reaction_flow: Function | None = None  # that flow, as a function of (s, y)
    smoothed_guess: bool = False  # `source` uses a Chebyshev interpolant of F in u

    @property
    def has_source(self) -> bool:
        """Whether there is a source of any kind."""
        return self.source is not None or self.nonlinear is not None

    @cached_property
    def paths(self) -> PathSimulator:
        """The paths that validate an answer."""
        return path_simulator(self.diffusion, self.coefficients, self.steps)

    @cached_property
    def feature_paths(self) -> PathSimulator:
        """The paths that features follow."""
        return path_simulator(self.diffusion, self.coefficients, FEATURE_STEPS)

    def with_source_guess(self, source: SemilinearSource | None = None) -> CanonicalProblem:
        """F frozen at a guess of v, by F itself or by `source` in its place."""
        assert self.nonlinear is not None
        frozen, flow = source or self.nonlinear, None
        if self.flow_resolved and not self.nonlinear.slopes:
            flow = ReactionFlow(frozen, self.initial, self.nonlinear.flow_steps(self.dim))
        guess = Function(FrozenSource(frozen, self.initial, flow))
        return replace(self, reaction_flow=None if flow is None else Function(flow), source=guess)

    def with_smoothed_guess(self) -> CanonicalProblem:
        """The same for an F with kinks in u: the guess would have them too, the solution has none."""
        assert self.nonlinear is not None
        if self.nonlinear.slopes:
            return replace(self, source=None, reaction_flow=None, smoothed_guess=True)
        smooth = Function(ChebyshevSource(self.nonlinear.function, *map(np.asarray, self.u_range)))
        guess = self.with_source_guess(SemilinearSource(smooth, self.nonlinear.transform, False))
        return replace(guess, smoothed_guess=True)

    def value_scale(self, s: np.ndarray) -> np.ndarray:
        """What values are multiplied by at the time s to give the user's."""
        return self.outer_transform.value_scale(self.outer_transform.inverse_time(s))
