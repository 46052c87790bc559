"""Every number behind a classifier's fit of up to 5,000 rows, with its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class ClassSettings:
    """How candidates are fitted, judged and averaged. Tests shrink it; users choose among a few by ``effort``.

    Numbers without another source are those of 0.8, chosen on the tables of docs/tables.md.
    """

    # Folds that judge candidates, and rows below which there is nothing to judge by.
    folds: int = 5
    fewest_rows: int = 10
    # Knots of a column's grid, on which all members live; trained hats are at 8 of them.
    knots: int = 16
    hat_knots: int = 8
    # L2 penalties of the logistic regression on straight lines, for columns of variance 1.
    logistic_penalties: tuple[float, ...] = (100.0, 10.0, 1.0, 0.1, 0.01, 0.001)
    # Rows on which hyper-parameters are learned, L-BFGS steps from either start and then from the better one, and
    # entries of all columns' covariances together: limits of time. Scales that are not learned to the end did no
    # worse on held-out rows. Every fold begins anew: from a start that all rows had found, out-of-fold log-losses of
    # small tables were too good.
    first_rows: int = 330
    first_iterations: int = 8
    iterations: int = 20
    learning_entries: float = 3e6
    # Penalties of a mode: how many times smaller than 1 the variance of the logits is taken to be.
    process_penalties: tuple[float, ...] = (1.0, 1 / 16, 1 / 256, 1 / 4096)
    # Rows over which a mode is a sum; there are fewer where passes · rows · centres · classes would be more work.
    centres: int = 1000
    fewest_centres: int = 150
    mode_work: float = 5e10
    mode_passes: int = 6300
    # How far the train of the processes may be from their logits: an error of 0.03 costs about 0.03²/8 nats a row.
    tolerance: float = 0.03
    largest_bond: int = 40
    # Trained candidates: steps, Adam's rate, bonds and penalties over straight lines and over hats, those first that
    # stay where there is no time for all, and runs that train side by side (more do not fit in the caches of a CPU).
    # 400 steps in place of 150 were a little better, and bond 4 over lines no worse than 10: 24 splits of 14 tables.
    steps: int = 150
    rate: float = 0.05
    line_bond: int = 4
    hat_bond: int = 10
    line_penalties: tuple[float, ...] = (0.001, 0.01, 0.0001)
    hat_penalties: tuple[float, ...] = (0.003, 0.0003)
    runs_at_once: int = 30
    # Where straight lines become flat, in standard deviations, so that no tail decides alone.
    furthest: float = 2.5
    # Multiplications (rows · Σ widths · r² · runs · steps) of all trained candidates, and of the logistic regressions
    # (about 720 passes of each fold over the rows): about 25 seconds each.
    trained_work: float = 1e11
    line_passes: int = 720
    line_work: float = 1e11
    # Weights of the averaged module, 64 MiB: trained candidates beyond it are left out.
    most_weights: int = 2**23

    @classmethod
    def of_effort(cls, effort: str) -> Self:
        """The settings of ``"quick"``, ``"auto"`` or ``"best"``, which is ``"auto"`` with twice the steps.

        >>> ClassSettings.of_effort("quick").folds
        3
        """
        if effort == "quick":
            return cls(
                folds=3,
                first_rows=150,
                iterations=8,
                first_iterations=3,
                process_penalties=(1 / 8, 1 / 256),
                centres=400,
                line_penalties=(0.01,),
                hat_penalties=(0.001,),
            )
        if effort == "best":
            return cls(first_rows=660, first_iterations=16, iterations=40, steps=300)
        return cls()
