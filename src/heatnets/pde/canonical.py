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
from heatnets.pde.paths import EulerPaths, ExactPaths, PathSimulator, WeightedExactPaths
from heatnets.pde.preintegration import PreIntegration
from heatnets.pde.regions import Region
from heatnets.pde.sources import (
    ChebyshevSource,
    FrozenSource,
    LinearSource,
    ReactionFlow,
    SemilinearSource,
    Source,
)
from heatnets.pde.transforms import TransformChain

FEATURE_STEPS = 2  # time steps of the paths inside features: they only shape the network


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
    source: Source  # F
    region: Region
    diffusion: Diffusion  # A; its value at the centre of the region if A varies
    coefficients: CoefficientField | None  # None if all coefficients are constant
    steps: int  # time steps of the validation paths, if coefficients vary
    steps_given: bool  # whether the user gave `steps`
    outer_transform: TransformChain  # from the user's times, points and values to canonical ones
    zero_initial: bool = False  # v0 was zero at all points at which it was evaluated
    warnings: tuple[str, ...] = ()  # warnings shown when the `Problem` was made
    u_range: tuple[float, float] = (0.0, 0.0)  # values of u for which F(s, y, v) was examined
    source_has_kinks: bool = False  # F has kinks as a function of u
    flow_resolved: bool = True  # the ODE v' = F(s, y, v) from v0 stays finite, its steps converge
    guess: Function | None = None  # (s, y) ↦ F at a guess of v, if F depends on v
    reaction_flow: Function | None = None  # the solution of this ODE, as a function of (s, y)
    smoothed_guess: bool = False  # `guess` uses a Chebyshev interpolant of F in u
    # How features integrate kinks of v0 in one direction; None if they do not.
    preintegration: PreIntegration | None = None

    @property
    def has_source(self) -> bool:
        """Whether F is not zero."""
        return self.source.uses_u or self.feature_source is not None

    @property
    def feature_source(self) -> Function | None:
        """The function of (s, y) that features transport: F, or F at a guess of v; None if none."""
        return self.source.function if isinstance(self.source, LinearSource) else self.guess

    def without_source(self) -> CanonicalProblem:
        """The problem with F = 0."""
        return replace(self, source=LinearSource(), guess=None, reaction_flow=None)

    def linear_part(self) -> CanonicalProblem:
        """The problem without a source that depends on v."""
        return self.without_source() if self.source.uses_u else self

    @property
    def has_path_weights(self) -> bool:
        """Whether the weights of paths depend on the path."""
        return self.coefficients is not None and self.coefficients.has_reaction

    @cached_property
    def paths(self) -> PathSimulator:
        """The path simulator for validation."""
        return self._simulator(self.steps, np.asarray(self.steps))

    @cached_property
    def feature_paths(self) -> PathSimulator:
        """The path simulator inside features."""
        return self._simulator(FEATURE_STEPS)

    def _simulator(self, steps: int, used: np.ndarray | None = None) -> PathSimulator:
        """Exact paths if coefficients are constant, Euler paths if they vary."""
        if self.coefficients is None:
            return ExactPaths(self.diffusion)
        simulator = WeightedExactPaths if self.coefficients.only_reaction_varies else EulerPaths
        return simulator(self.coefficients, steps, used)

    def with_source_guess(self, source: SemilinearSource | None = None) -> CanonicalProblem:
        """The problem with a function of (s, y) for features: F at a guess of v.

        The guess is the reaction flow if F does not depend on ∇v and the flow is resolved, else v0.
        With `source`, that source is used instead of F.
        """
        assert isinstance(self.source, SemilinearSource)
        frozen, flow = source or self.source, None
        if self.flow_resolved and not self.source.uses_gradient:
            flow = ReactionFlow(frozen, self.initial, self.source.flow_steps(self.dim))
        guess = Function(FrozenSource(frozen, self.initial, flow))
        return replace(self, reaction_flow=None if flow is None else Function(flow), guess=guess)

    def with_smoothed_guess(self) -> CanonicalProblem:
        """`with_source_guess` for an F with kinks in u, with a Chebyshev interpolant of F in u.

        F at a guess of v would have these kinks too, but the solution has none. If F depends on ∇v
        there is no guess.
        """
        source = self.source
        assert isinstance(source, SemilinearSource)
        if source.uses_gradient:
            return replace(self, guess=None, reaction_flow=None, smoothed_guess=True)
        smooth = Function(ChebyshevSource(source.function, *map(np.asarray, self.u_range)))
        guess = self.with_source_guess(replace(source, function=smooth))
        return replace(guess, smoothed_guess=True)

    def value_scale(self, s: np.ndarray) -> np.ndarray:
        """The factor u / v at the canonical time s, of shape (n,)."""
        return self.outer_transform.value_scale(self.outer_transform.inverse_time(s))
