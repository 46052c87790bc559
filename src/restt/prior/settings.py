"""Every number behind a closed-form fit, with its source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import ClassVar, Self

from restt._common.errors import check_choice
from restt.prior.hyper import Density

TERMS = ("smooth", "rough", "joint", "sum")
_LEARNED = Path(__file__).parent / "hyper_priors.json"


@dataclass(frozen=True, eq=False)
class Component:
    """One component of the hyper-prior: which terms of the kernel it has, and densities of its hyper-parameters."""

    name: str
    terms: tuple[str, ...]  # of TERMS
    weight: float  # before any row is seen
    densities: Mapping[str, Density]


@cache
def learned_components() -> tuple[Component, ...]:
    """The components that ``tools/learn_hyper_priors.py`` wrote."""
    stored = json.loads(_LEARNED.read_text())
    return tuple(
        Component(
            part["name"],
            tuple(part["terms"]),
            part["weight"],
            {
                name: Density(centre, scale, float("inf") if degrees is None else degrees, slope)
                for name, (centre, scale, degrees, slope) in part["densities"].items()
            },
        )
        for part in stored["components"]
    )


@dataclass(frozen=True)
class Settings:
    """How a closed-form fit is done. Tests shrink it; users choose among a few by ``effort``."""

    # Knots of a number. 64 in place of 32 changed the error by less than its noise (results/tabular/knots).
    knots: int = 32
    # Rows on which every component is fitted first, and rows on which scales are learned: limits of time.
    first_rows: int = 330
    scale_rows: int = 2000
    # Rows up to which the posterior is that of all rows, a limit of memory: their covariance in float32 takes 4 GB.
    # Beyond, rows take part through as many inducing rows as scale_rows.
    exact_rows: int = 30_000
    # The regressor solves so many rows of a longer table and refines the train on all rows by gradients, but for sites
    # wider than this, whose vectors would be as large as the table.
    solved_rows: int = 8_000
    widest_refined: int = 512
    # Conjugate gradients on more than scale_rows: rows of the preconditioner, the residual where they stop in standard
    # deviations of the noise (a tenth of the rounding's tolerance), and most steps.
    preconditioner_rows: int = 1000
    residual: float = 0.003
    gradient_steps: int = 200
    # There leave-one-out predictions cost too much: this share of the rows, at most so many, is held out once to fit
    # the predictive distribution.
    held_share: float = 0.2
    held_rows: int = 1000
    # Most L-BFGS steps from each start, of the search in the middle, and of the last one and the other components.
    first_iterations: int = 13
    iterations: int = 40
    last_iterations: int = 20
    other_iterations: int = 20
    starts: int = 2
    warm_others: bool = False
    # Variance of the constant, for a target of variance 1.
    constant: float = 0.25
    # Least noise variance, for a Cholesky factor in float64.
    least_noise: float = 1e-8
    # The first component's weight in the average counts as much as so many rows (tools/learn_hyper_priors.py).
    stacking_rows: float = 60.0
    # Leave-one-out residuals are of hyper-parameters that were fitted to the same rows. Their variance grows by
    # (these rows + this share of the columns)/rows: a least-squares fit to 411 cuts of the development tables.
    optimism_rows: float = 16.0
    optimism_columns: float = 0.8
    # Expected size of a slope of the log variance of residuals in a standardised column: not tuned.
    slope_scale: float = 0.05
    # Expected 1/ν of Student's noise, exponentially distributed; ν is above 2.
    tail: float = 0.02
    # Largest bond, and how far the train may be from the exact posterior mean in standard deviations of the noise:
    # 0.03 adds a thousandth to the noise's variance.
    largest_bond: int = 64
    tolerance: float = 0.03
    # Most inducing rows of the predictive variance, which is exact for tables of no more, and the root mean square
    # error of the logarithm of s for which fewer are enough; a file's size may allow fewer.
    inducing_rows: int = 768
    spread_tolerance: float = 0.03
    components: tuple[Component, ...] = field(default_factory=learned_components)

    EFFORTS: ClassVar[tuple[str, ...]] = ("quick", "auto", "best")

    # Numbers of the model itself, the same at every effort; none was tuned but the first.
    # Bound of the log variance of noise about the common one, a factor of four between least and largest: without
    # a bound Poisson counts had an R² of 0.34 in place of 0.99 (docs/tables.md).
    NOISE_RANGE: ClassVar[float] = 0.7
    # Standardised values and predictions beyond which the noise no longer grows.
    NOISE_END: ClassVar[float] = 2.5
    # A search stops where a step gains less, in nats; a looser stop lost 0.03 of R² on pumadyn32nm (docs/tables.md).
    LEAST_GAIN: ClassVar[float] = 0.02
    # Members of less weight are left out.
    LEAST_WEIGHT: ClassVar[float] = 0.02
    # Bounds of 1/ν of Student's noise: next to normal, and a variance that is finite.
    TAILS: ClassVar[tuple[float, float]] = (1e-4, 0.45)
    # Most that the variance of residuals grows: of a few rows and many columns nothing is known of it.
    MOST_GROWTH: ClassVar[float] = 2.0
    # Bonds and inducing rows that are tried before the most: they are enough for most tables, and cost little.
    FIRST_BONDS: ClassVar[tuple[int, ...]] = (12, 32)
    FIRST_INDUCING: ClassVar[tuple[int, ...]] = (128, 384)
    # How many residuals of a normal distribution count beside those of the rows, and the fewest degrees of the tails.
    NORMAL_ROWS: ClassVar[int] = 20
    FEWEST_DEGREES: ClassVar[int] = 3
    # Bounds of the part of s² that is the same everywhere, relative to the part that depends on the row.
    CONSTANT_BOUNDS: ClassVar[tuple[float, float]] = (0.05, 1e3)

    @classmethod
    def of_effort(cls, effort: str) -> Self:
        """The settings of ``"quick"``, ``"auto"`` or ``"best"``.

        >>> Settings.of_effort("best").scale_rows
        4000
        """
        check_choice("effort", effort, cls.EFFORTS)
        if effort == "quick":
            # One component on a few hundred rows; small bonds and half the knots, as rounding is the rest of the time.
            return cls(
                knots=16,
                first_rows=200,
                scale_rows=400,
                first_iterations=4,
                iterations=12,
                last_iterations=6,
                largest_bond=16,
                components=learned_components()[:1],
            )
        if effort == "best":
            # Twice the rows and steps of everything.
            return cls(first_rows=660, scale_rows=4000, first_iterations=26, iterations=80, last_iterations=40)
        return cls()
