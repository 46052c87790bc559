"""Hyper-parameters of the kernel with their learned priors, and every other number behind a closed-form fit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_choice

TERMS = ("smooth", "rough", "joint", "sum")
_LEARNED = Path(__file__).parent / "hyper_priors.json"
# Logarithms of: the noise, the three products' scales, the common relevance in the smooth product (a), the rough
# product (j), the smooth and rough sums (b, r) and the joint term (w); then the noise's growth with the prediction.
GLOBAL = ("noise", "smooth", "rough", "joint", "a", "j", "b", "r", "w", "noise_mean")
# Of a number: its relevance and what each term departs from it, lengths, the line's share, position, and noise.
NUMBER = ("relevance", "a", "j", "b", "r", "w", "length", "rough_length", "line", "position", "noise")
LEVELS = ("relevance", "a", "j", "b", "r", "w")


@dataclass(frozen=True)
class Density:
    """Student's t density of a hyper-parameter; infinite degrees of freedom are the normal one."""

    centre: float
    scale: float
    degrees: float = float("inf")
    per_log_column: float = 0.0  # by how much the centre moves with the logarithm of the number of columns


@dataclass(frozen=True, eq=False)
class Component:
    """One component of the hyper-prior: which terms of the kernel it has, and densities of its hyper-parameters."""

    name: str
    terms: tuple[str, ...]  # of TERMS
    weight: float = 1.0  # before any row is seen
    densities: Mapping[str, Density] = field(default_factory=dict)


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
class Layout:
    """Places of the hyper-parameters of a table's columns in one vector."""

    numbers: int
    categories: int
    outputs: int = 1
    constant: int = 0  # columns of one value among them

    @property
    def varying(self) -> int:
        """Number of columns of more than one value, 1 where there is none."""
        return max(1, self.numbers + self.categories - self.constant)

    @cached_property
    def names(self) -> list[str]:
        """The density that each entry of the vector has."""
        found = [*GLOBAL, *["warp"] * self.outputs]
        found += [f"number.{name}" for name in NUMBER for _ in range(self.numbers)]
        return found + [f"level.{name}" for name in LEVELS for _ in range(self.categories)]

    def split(self, theta: Tensor) -> dict[str, Tensor]:
        """Scalars of the globals, (O,) of the warp, one entry a column of the others."""
        common, warp, numbers, levels = self.blocks(theta)
        found = {**dict(zip(GLOBAL, common.unbind(), strict=True)), "warp": warp}
        found |= {f"number.{name}": part for name, part in zip(NUMBER, numbers.unbind(), strict=True)}
        return found | {f"level.{name}": part for name, part in zip(LEVELS, levels.unbind(), strict=True)}

    def blocks(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # (10,), (O,), (11, K), (6, L)
        """The globals, the warp, and those of all numbers and of all categories, a row for each name."""
        sizes = len(GLOBAL), self.outputs, len(NUMBER) * self.numbers, len(LEVELS) * self.categories
        common, warp, numbers, levels = theta.split(sizes)
        return common, warp, numbers.view(len(NUMBER), -1), levels.view(len(LEVELS), -1)

    def densities(self, named: Mapping[str, Density], like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Centres, scales and degrees of freedom of all entries."""
        columns = float(np.log(self.varying))
        rows = [named[name] for name in self.names]
        table = [[d.centre + d.per_log_column * columns, d.scale, d.degrees] for d in rows]
        centre, scale, degrees = torch.tensor(table, dtype=like.dtype, device=like.device).T.contiguous()
        return centre, scale, degrees


def log_prior(theta: Tensor, centre: Tensor, scale: Tensor, degrees: Tensor) -> Tensor:
    """Log density up to a constant."""
    away = ((theta - centre) / scale).square()
    heavy = torch.isfinite(degrees)
    finite = torch.where(heavy, degrees, 1.0)
    student = (finite + 1) / 2 * torch.log1p(away / finite)
    return -torch.where(heavy, student, away / 2).sum()


@dataclass(frozen=True)
class Settings:
    """Settings of a closed-form fit. Tests shrink it; users choose among a few by ``effort``."""

    # Knots of a number: as many as the root of the rows, within these bounds (tools/compare_knots.py). The fewest serve
    # a thousand rows; the most are a limit of time.
    fewest_knots: int = 32
    most_knots: int = 128
    # Rows on which every component is fitted first, and rows on which scales are learned: limits of time.
    first_rows: int = 330
    scale_rows: int = 2000
    # Rows up to which the posterior is that of all rows, a limit of memory: their covariance in float32 takes 4 GB.
    exact_rows: int = 30_000
    # The regressor solves so many rows of a longer table and refines the train on all rows by gradients.
    solved_rows: int = 8_000
    # Conjugate gradients on more than scale_rows: rows of the preconditioner, the residual where they stop in standard
    # deviations of the noise (a tenth of the rounding's tolerance), and most steps.
    preconditioner_rows: int = 1000
    residual: float = 0.003
    gradient_steps: int = 200
    # There leave-one-out predictions cost too much: this share of the rows, at most so many, is held out once to fit
    # the predictive distribution.
    held_share: float = 0.2
    held_rows: int = 1000
    # Most L-BFGS steps from each start, of the search in the middle, of the last one, and of the other components.
    first_iterations: int = 13
    iterations: int = 24
    last_iterations: int = 10
    other_iterations: int = 20
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
    # a bound Poisson counts had an R² of 0.34 in place of 0.99 (docs/table_choices.md).
    NOISE_RANGE: ClassVar[float] = 0.7
    # Standardised values and predictions beyond which the noise no longer grows.
    NOISE_END: ClassVar[float] = 2.5
    # A search stops where a step gains less, in nats; more lost 0.03 of R² on pumadyn32nm (docs/table_choices.md).
    LEAST_GAIN: ClassVar[float] = 0.02
    # Members of less weight are left out.
    LEAST_WEIGHT: ClassVar[float] = 0.02
    # Bounds of 1/ν of Student's noise: next to normal, and a variance that is finite.
    TAILS: ClassVar[tuple[float, float]] = (1e-4, 0.45)
    # Most that the variance of residuals grows: of a few rows and many columns nothing is known of it.
    MOST_GROWTH: ClassVar[float] = 2.0
    # Bonds and inducing rows that are tried before the most.
    FIRST_BONDS: ClassVar[tuple[int, ...]] = (12, 32)
    FIRST_INDUCING: ClassVar[tuple[int, ...]] = (128, 384)
    # How many residuals of a normal distribution count beside those of the rows, and the fewest degrees of the tails.
    NORMAL_ROWS: ClassVar[int] = 20
    FEWEST_DEGREES: ClassVar[int] = 3
    # Bounds of the part of s² that is the same everywhere, relative to the part that depends on the row.
    CONSTANT_BOUNDS: ClassVar[tuple[float, float]] = (0.05, 1e3)

    def knots(self, rows: int) -> int:
        """Number of knots of a column in a table of so many rows.

        >>> [Settings().knots(rows) for rows in (100, 2_000, 10_000, 100_000)]
        [32, 45, 100, 128]
        """
        return min(max(round(rows**0.5), self.fewest_knots), self.most_knots)

    @classmethod
    def of_effort(cls, effort: str) -> Self:
        """The settings of ``"quick"``, ``"auto"`` or ``"best"``.

        >>> Settings.of_effort("best").scale_rows
        4000
        """
        check_choice("effort", effort, cls.EFFORTS)
        if effort == "quick":
            # One component, whose first search is as long as at "auto": shorter ones lose functions of columns that
            # matter only together (docs/table_choices.md).
            return cls(scale_rows=400, iterations=8, last_iterations=4, components=learned_components()[:1])
        if effort == "best":
            # Twice the rows and steps of everything.
            return cls(
                first_rows=660,
                scale_rows=4000,
                first_iterations=26,
                iterations=48,
                last_iterations=20,
                other_iterations=40,
            )
        return cls()
