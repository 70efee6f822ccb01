"""The problem that is solved: a `Problem` in canonical coordinates.

In these coordinates there is no constant drift, no constant reaction and no time reversal.
"""

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

FEATURE_STEPS = 2  # time steps of the paths inside features: they only shape the network


def path_simulator(
    diffusion: Diffusion, coefficients: CoefficientField | None, steps: int
) -> PathSimulator:
    """A path simulator: exact if coefficients are constant, with Euler steps if they vary."""
    return ExactPaths(diffusion) if coefficients is None else EulerPaths(coefficients, steps)


@dataclass(frozen=True, eq=False)
class CanonicalProblem:
    """The problem v_s = div(A ∇v) + F(s, y, v, ∇v), v(0, y) = v0(y), for 0 <= s <= S.

    Coefficients that are functions of (t, x) are in `coefficients`; constant drift and reaction
    have been removed by transforms. Made by `Problem`, changed with `dataclasses.replace`.
    """

    dim: int
    horizon: float
    initial: Function
    data_name: str  # "initial" or "terminal": the argument that the user gave
    source: Function | None  # F(s, y); if F depends on v, F at a guess of v
    nonlinear: SemilinearSource | None  # F, if it depends on v
    region: Region
    diffusion: Diffusion  # A; its value at the centre of the region if A varies
    coefficients: CoefficientField | None  # None if all coefficients are constant
    steps: int  # time steps of the validation paths, if coefficients vary
    steps_given: bool  # whether the user gave `steps`
    zero_initial: bool  # v0 was zero at all points at which it was evaluated
    warnings: tuple[str, ...]  # warnings shown when the `Problem` was made
    outer_transform: TransformChain  # from the user's times, points and values to canonical ones
    u_range: tuple[float, float] = (0.0, 0.0)  # values of u for which a nonlinear F was examined
    source_has_kinks: bool = False  # F has kinks as a function of u
    flow_resolved: bool = True  # the ODE v' = F(s, y, v) from v0 stays finite, its steps converge
    reaction_flow: Function | None = None  # the solution of this ODE, as a function of (s, y)
    smoothed_guess: bool = False  # `source` uses a Chebyshev interpolant of F in u

    @property
    def has_source(self) -> bool:
        """Whether there is a source, linear or semilinear."""
        return self.source is not None or self.nonlinear is not None

    @property
    def has_path_weights(self) -> bool:
        """Whether the weights of paths depend on the path."""
        return self.coefficients is not None and self.coefficients.has_reaction

    @cached_property
    def paths(self) -> PathSimulator:
        """The path simulator for validation."""
        return path_simulator(self.diffusion, self.coefficients, self.steps)

    @cached_property
    def feature_paths(self) -> PathSimulator:
        """The path simulator inside features."""
        return path_simulator(self.diffusion, self.coefficients, FEATURE_STEPS)

    def with_source_guess(self, source: SemilinearSource | None = None) -> CanonicalProblem:
        """The problem with F(s, y, v, ∇v) replaced by a function of (s, y): F at a guess of v.

        The guess is the reaction flow if F does not depend on ∇v and the flow is resolved, else v0.
        With `source`, that source is used instead of F.
        """
        assert self.nonlinear is not None
        frozen, flow = source or self.nonlinear, None
        if self.flow_resolved and not self.nonlinear.uses_gradient:
            flow = ReactionFlow(frozen, self.initial, self.nonlinear.flow_steps(self.dim))
        guess = Function(FrozenSource(frozen, self.initial, flow))
        return replace(self, reaction_flow=None if flow is None else Function(flow), source=guess)

    def with_smoothed_guess(self) -> CanonicalProblem:
        """`with_source_guess` for an F with kinks in u, with a Chebyshev interpolant of F in u.

        F at a guess of v would have these kinks too, but the solution has none. If F depends on ∇v
        there is no guess.
        """
        assert self.nonlinear is not None
        if self.nonlinear.uses_gradient:
            return replace(self, source=None, reaction_flow=None, smoothed_guess=True)
        smooth = Function(ChebyshevSource(self.nonlinear.function, *map(np.asarray, self.u_range)))
        guess = self.with_source_guess(SemilinearSource(smooth, self.nonlinear.transform, False))
        return replace(guess, smoothed_guess=True)

    def value_scale(self, s: np.ndarray) -> np.ndarray:
        """The factor u / v at the canonical time s, of shape (n,)."""
        return self.outer_transform.value_scale(self.outer_transform.inverse_time(s))
