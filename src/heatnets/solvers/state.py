"""Rounds of growth: what each leaves, and how far a growth has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from heatnets.fit import least_squares

_STALLED = 0.8  # a round that leaves more than this part of the error, three times in a row, ends the growth


class Round(NamedTuple):
    """One round of the growth, as kept in `stats["history"]`."""

    features: tuple[int, int]
    rows: int
    time_degree: int
    make: str  # which designs grew into this round
    estimated_error: float
    seconds: float  # since the start

    @classmethod
    def of(cls, words: list[Any]) -> Round:
        """A round that was kept."""
        return cls(tuple(words[0]), *words[1:])

    def __str__(self) -> str:
        return (
            f"{self.features[0]} + {self.features[1]} features ({self.make}), {self.rows} rows, degree {self.time_degree} in time: "
            f"estimated error {self.estimated_error:.1e}, {self.seconds:.1f} s"
        )


class Fit(NamedTuple):
    """Weights of some columns of the dictionary, and the error they are estimated to leave."""

    features: int  # of the dictionary at that time
    rows: int
    degree: int
    solved: least_squares.Fit
    error: float  # relative, one standard error added
    trained: float  # root mean square misfit of the rows, relative to the source (to u/T where there is none)
    judged: float  # the same of the judges' rows
    score: float  # what fits are compared by: an upper estimate of the error that rare residuals deceive less

    @property
    def words(self) -> list[Any]:
        """All but the weights, to be kept."""
        return [*self[:3], [*self.solved[1:]], *self[4:]]

    @classmethod
    def of(cls, words: list[Any], weights: np.ndarray) -> Fit:
        """A fit that was kept."""
        features, rows, degree, solved, *rest = words
        return cls(features, rows, degree, least_squares.Fit(jnp.asarray(weights), *solved), *rest)


@dataclass
class GrowthState:
    """How far a growth has come: all that is needed to go on, but the entries, which can be computed again."""

    history: list[Round] = field(default_factory=list)
    makes: list[list[str]] = field(default_factory=list)  # the designs that grew into each round
    fit: Fit | None = None  # the last
    best: Fit | None = None
    stalled: int = 0  # rounds without gain, in a row
    entries: int = 0  # that the last round computed
    spent: dict[str, float] = field(default_factory=dict)  # seconds of the last round
    clock: dict[str, float] = field(default_factory=dict)  # seconds of all
    iterations: list[list[float]] = field(default_factory=list)
    target: float = np.inf  # an estimate below it is worth a final check

    def take(
        self,
        fit: Fit,
        made: Round,
        growing: list[str],
        entries: int,
        spent: dict[str, float],
        clock: dict[str, float],
    ) -> None:
        """One more round."""
        self.history.append(made)
        self.makes.append(growing)
        self.stalled = (
            self.stalled + 1
            if self.best is not None and fit.score > _STALLED * self.best.score
            else 0
        )
        self.fit, self.best = (
            fit,
            fit if self.best is None or fit.score < self.best.score else self.best,
        )
        self.entries, self.spent, self.clock = entries, spent, dict(clock)

    @property
    def words(self) -> dict[str, Any]:
        """What can be said of it in JSON."""
        assert self.fit is not None
        assert self.best is not None
        return {**vars(self), "fit": self.fit.words, "best": self.best.words}

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The rest."""
        return {
            name: np.asarray(fit.solved.weights)
            for name, fit in (("fit", self.fit), ("best", self.best))
            if fit is not None
        }

    @classmethod
    def of(cls, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> GrowthState:
        """What was kept."""
        known = {name: words[name] for name in cls.__dataclass_fields__}
        fits = {name: Fit.of(words[name], arrays[name]) for name in ("fit", "best")}
        return cls(**{**known, **fits, "history": [Round.of(r) for r in words["history"]]})
