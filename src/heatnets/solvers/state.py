"""State of an adaptive solve: its rounds, its fits, and how they are stored in a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from heatnets.fit import least_squares

# A round whose score is above this fraction of the best score so far counts as "without gain"; the
# solve stops after three such rounds in a row.
_STALLED = 0.8


class Round(NamedTuple):
    """One round of the adaptive solver, as listed in `stats["history"]`."""

    features: tuple[int, int]  # from the initial condition, from the source
    rows: int
    time_degree: int
    make: str  # names of the designs whose features were doubled in this round
    estimated_error: float
    seconds: float  # since the start of the solve

    @classmethod
    def of(cls, words: list[Any]) -> Round:
        """Restore a round stored in a checkpoint."""
        return cls(tuple(words[0]), *words[1:])

    def __str__(self) -> str:
        return (
            f"{self.features[0]} + {self.features[1]} features ({self.make}), {self.rows} rows, "
            f"degree {self.time_degree} in time: "
            f"estimated error {self.estimated_error:.1e}, {self.seconds:.1f} s"
        )


class Fit(NamedTuple):
    """Candidate fit: the weights of some columns of the dictionary, and their estimated error."""

    features: int  # number of columns of the dictionary that are used
    rows: int
    degree: int  # of the weights in time
    solved: least_squares.Fit
    error: float  # relative, plus one standard error
    # Root mean square misfit of the training rows, relative to the source (to u/T without source).
    trained: float
    judged: float  # the same on the validation set
    # Fits are compared by their score: an upper estimate of the error, less sensitive than `error`
    # to rare large residuals that were not sampled.
    score: float

    @property
    def words(self) -> list[Any]:
        """All fields except the weights, for a checkpoint."""
        return [*self[:3], [*self.solved[1:]], *self[4:]]

    @classmethod
    def of(cls, words: list[Any], weights: np.ndarray) -> Fit:
        """Restore a fit stored in a checkpoint."""
        features, rows, degree, solved, *rest = words
        return cls(features, rows, degree, least_squares.Fit(jnp.asarray(weights), *solved), *rest)


@dataclass
class GrowthState:
    """State of an adaptive solve, without the matrix entries (they can be recomputed)."""

    history: list[Round] = field(default_factory=list)
    makes: list[list[str]] = field(default_factory=list)  # designs that were doubled, per round
    fit: Fit | None = None  # fit of the last round
    best: Fit | None = None  # fit with the smallest score
    stalled: int = 0  # number of consecutive rounds without gain
    entries: int = 0  # matrix entries computed in the last round
    spent: dict[str, float] = field(default_factory=dict)  # seconds per phase, last round
    clock: dict[str, float] = field(default_factory=dict)  # seconds per phase, all rounds
    iterations: list[list[float]] = field(default_factory=list)  # changes by Newton or Picard steps
    target: float = np.inf  # a final check is made when the estimated error is below it

    def take(
        self,
        fit: Fit,
        made: Round,
        growing: list[str],
        entries: int,
        spent: dict[str, float],
        clock: dict[str, float],
    ) -> None:
        """Record a finished round."""
        self.history.append(made)
        self.makes.append(growing)
        no_gain = self.best is not None and fit.score > _STALLED * self.best.score
        self.stalled = self.stalled + 1 if no_gain else 0
        self.fit = fit
        self.best = fit if self.best is None or fit.score < self.best.score else self.best
        self.entries, self.spent, self.clock = entries, spent, dict(clock)

    @property
    def words(self) -> dict[str, Any]:
        """All fields except the weights of the fits, for the JSON part of a checkpoint."""
        assert self.fit is not None
        assert self.best is not None
        return {**vars(self), "fit": self.fit.words, "best": self.best.words}

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Weights of the last and of the best fit, for the array part of a checkpoint."""
        return {
            name: np.asarray(fit.solved.weights)
            for name, fit in (("fit", self.fit), ("best", self.best))
            if fit is not None
        }

    @classmethod
    def of(cls, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> GrowthState:
        """Restore the state stored in a checkpoint."""
        fields = {name: words[name] for name in cls.__dataclass_fields__}
        fits = {name: Fit.of(words[name], arrays[name]) for name in ("fit", "best")}
        return cls(**{**fields, **fits, "history": [Round.of(r) for r in words["history"]]})
