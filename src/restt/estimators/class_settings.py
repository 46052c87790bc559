"""Every number behind a classifier's fit, with its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class ClassSettings:
    """How candidates are fitted, judged and averaged. Tests shrink it; users choose among a few by ``effort``.

    Numbers without another source are those of 0.8, chosen on the tables of docs/table_choices.md.
    """

    # Folds that judge candidates, and rows below which there is nothing to judge by.
    folds: int = 5
    fewest_rows: int = 10
    # Rows that candidates are judged on, and that kernels with a share are conditioned on: limits of time and memory.
    most_rows: int = 2500
    solved_rows: int = 20_000
    # Knots of a column's grid, on which all members live; trained hats are at 8 of them.
    knots: int = 16
    hat_knots: int = 8
    # Levels of a category that have a state of their own, and states of all columns.
    most_levels: int = 500
    most_states: int = 3000
    # Columns beyond which straight lines are the only candidate (restt.estimators.wide_classes where rows are many):
    # trains of so many sites explode or learn nothing under one rate.
    most_columns: int = 500
    # Rows on which hyper-parameters are learned, L-BFGS steps from either start and then from the better one, and
    # entries of all columns' covariances together: limits of time. Scales that are not learned to the end did no
    # worse on held-out rows. Every fold begins anew: from a start that all rows had found, out-of-fold log-losses of
    # small tables were too good.
    learning_rows: int = 330
    first_iterations: int = 8
    iterations: int = 20
    learning_entries: float = 3e6
    # In products of straight lines a column with less than this share of the largest relevance takes no part.
    relevant: float = 0.02
    # w of the kernels exp(-w d²/2), times the number of columns: 2 is scikit-learn's gamma="scale".
    widths: tuple[float, ...] = (2.0,)
    # Penalties of a mode: how many times smaller than 1 the variance of the logits is taken to be.
    penalties: tuple[float, ...] = (1.0, 1 / 16, 1 / 256, 1 / 4096)
    # Rows over which a mode is a sum, and its axes: fewer where rows · axes · classes were more.
    centres: int = 1000
    fewest_axes: int = 50
    mode_work: float = 8e6
    # L-BFGS steps of a mode, and the share of its objective that a step gains where it ends.
    mode_iterations: int = 60
    mode_tolerance: float = 1e-6
    # How far the train of the products may be from their logits: an error of 0.03 costs about 0.03²/8 nats a row.
    tolerance: float = 0.03
    largest_bond: int = 40
    first_bonds: tuple[int, ...] = (8, 20)
    # Trained candidates: steps, Adam's rate, bonds and penalties over straight lines and over hats, those first that
    # stay where there is no time for all, and runs that train side by side (more do not fit in the caches of a CPU).
    # Bond 4 over lines was no worse than 10 (24 splits of 14 tables); 400 steps over lines had 1 % less log-loss than
    # 150 (26 splits of 19 tables), up to a tenth less where classes are free of noise.
    line_steps: int = 400
    hat_steps: int = 150
    rate: float = 0.05
    # Trains with a share are trained on with all rows, at a lower rate (at 0.05 one of R's tables went from a log-loss
    # of 0.32 to 0.45): so many steps, or batches where rows are many, and the most passes over the rows.
    refining_steps: int = 100
    refining_rate: float = 0.01
    batch: int = 512
    many_steps: int = 4000
    most_epochs: int = 20
    line_bond: int = 4
    hat_bond: int = 10
    line_penalties: tuple[float, ...] = (0.001, 0.01, 0.0001)
    hat_penalties: tuple[float, ...] = (0.003, 0.0003)
    runs_at_once: int = 30
    # Where straight lines become flat, in standard deviations, so that no tail decides alone.
    furthest: float = 2.5
    # Site vectors that hardly vary would be given huge initial weights; for the initialisation they vary this much.
    least_second_moment: float = 0.1
    # Multiplications (rows · Σ widths · r² · runs · steps) of all trained candidates: about 25 seconds.
    trained_work: float = 1e11
    # By how many nats on all held-out rows together a train has to be better than a kernel: two dozen rows are too few
    # to tell a lucky train from a good one.
    train_cost: float = 4.0
    # Bounds of the temperature: an average may be made less sure, never more, since on small tables that are nearly
    # free of errors the held-out rows would ask for it and the next error be paid dearly.
    temperatures: tuple[float, float] = (1.0, 3.0)
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
                learning_rows=150,
                first_iterations=3,
                iterations=8,
                penalties=(1 / 8, 1 / 256),
                centres=400,
                line_steps=150,
                line_penalties=(0.01,),
                hat_penalties=(0.001,),
            )
        if effort == "best":
            return cls(learning_rows=660, first_iterations=16, iterations=40, line_steps=800, hat_steps=300)
        return cls()
