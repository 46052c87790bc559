"""Rows of a table of classes as a classifier is fitted and judged on: equal ones merged, dealt out to folds.

A copy of a row carries no new information, and a model that was fitted to one must not be judged by the other: equal
rows are one row with the sum of their weights. In a table of few different rows (three categories, answers from 1 to 5)
equal rows are separate observations, which shows where they have several classes; they are then in different folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
from torch import Tensor

from restt.estimators.columns import Column, levels_beside, read_numbers
from restt.estimators.tables import Examples
from restt.estimators.targets import Labels
from restt.prior import Settings as PriorSettings
from restt.prior import Site
from restt.prior.pairs import Rows
from restt.prior.rows import content_order, distinct
from restt.prior.sites import fit_sites, rows_of

if TYPE_CHECKING:
    from restt.estimators.classifier import ResTTClassifier


@dataclass(frozen=True)
class ClassSettings:
    """Settings by which candidates are fitted, judged and averaged. Tests shrink it; users choose some by ``effort``.

    Numbers without another source are those of 0.8, chosen on the tables of docs/table_choices.md.
    """

    # Folds; the fewest rows that candidates are judged on; of more rows, as many folds are held out as have these rows.
    folds: int = 5
    fewest_rows: int = 10
    judged_rows: int = 1000
    # Rows that candidates are fitted to and judged on, a random sample of longer tables: a limit of time and memory.
    # Trains with a share see all rows.
    most_rows: int = 20_000
    # Levels of a category that have a state of their own, and states of all columns.
    most_levels: int = 500
    most_states: int = 3000
    # Rows · inducing rows · columns beyond which kernels take too long (a minute of a thread): such tables are trained
    # by gradients where rows are more than ``step_rows``, else straight lines are the only kernel. On 12,000 rows of
    # MNIST with 196 columns, 3.7e9, both do equally well (log-loss 0.180 and 0.173), on fewer kernels do better.
    kernel_work: float = 3e9
    # Learning of hyper-parameters: pairs of rows, and of rows and columns, of all folds' searches together, and L-BFGS
    # steps from either start and then from the better one. 330 rows for each of five folds and for all rows, 808 where
    # there is one fold. Every fold begins anew: from a start that all rows had found, out-of-fold log-losses of small
    # tables were too good.
    learning_pairs: float = 6 * 330.0**2
    learning_entries: float = 1.8e7
    # Where columns leave time for less rows, nothing is learned.
    fewest_learned: int = 75
    first_iterations: int = 8
    iterations: int = 20
    # w of the Gaussian kernel exp(-w d²/2), times the number of columns: 2 is scikit-learn's gamma="scale".
    width: float = 2.0
    # Penalties of a mode: how many times smaller than 1 the variance of the logits is taken to be.
    penalties: tuple[float, ...] = (1.0, 1 / 16, 1 / 256, 1 / 4096)
    # Inducing rows of a mode where there is one fold (divided by the fourth root of the number of searches: 1,000 of
    # five folds and all rows), and its axes: fewer where folds · rows · axes · (classes - 1) were more.
    inducing_rows: int = 1565
    fewest_axes: int = 50
    mode_work: float = 4e7
    # L-BFGS steps of a mode, and the share of its objective that a step gains where it ends.
    mode_iterations: int = 60
    mode_tolerance: float = 1e-6
    # How far the train of the products may be from their logits: an error of 0.03 costs about 0.03²/8 nats a row.
    tolerance: float = 0.03
    largest_bond: int = 40
    first_bonds: tuple[int, ...] = (8, 20)
    # Trained candidates: bond, steps, Adam's rate, penalties, those first that stay where there is no time for all, and
    # rows of a step. Trains of bond 10 over 8 hats a column in place of the last penalty were no better (7 tables).
    train_bond: int = 8
    # Trains of more sites explode or learn nothing under one rate.
    longest_train: int = 500
    train_steps: int = 300
    rate: float = 0.05
    train_penalties: tuple[float, ...] = (0.001, 0.0003, 0.0001)
    step_rows: int = 2500
    # Trains of as few folds as have these held-out rows come first; the others follow where one has a share there.
    raced_rows: int = 100
    # Trains with a share are trained on with all rows, at a lower rate (at 0.05 one of R's tables went from a log-loss
    # of 0.32 to 0.45): so many steps, or batches where rows are many, and the most passes over the rows.
    refining_steps: int = 100
    refining_rate: float = 0.01
    batch: int = 512
    many_steps: int = 4000
    most_epochs: int = 20
    # Where straight lines become flat, in standard deviations, so that no tail decides alone.
    furthest: float = 2.5
    # Site vectors that hardly vary would be given huge initial weights; for the initialisation they vary this much.
    least_second_moment: float = 0.1
    # Multiplications (rows · Σ widths · r² · runs · steps) of all trained candidates: about 25 seconds.
    trained_work: float = 1e11
    # Rounds of the greedy selection (no weight is below 1/rounds), the loss relative to the best candidate's beyond
    # which one takes no part, and by how many nats on all held-out rows together a train has to be better than a
    # kernel: two dozen rows are too few to tell a lucky train from a good one.
    rounds: int = 20
    most_loss: float = 2.0
    train_cost: float = 4.0
    # Weights of the averaged module, 64 MiB: trained candidates beyond it are left out.
    most_weights: int = 2**23

    def is_costly(self, rows: int, columns: int) -> bool:
        """Whether kernels of a table take too long.

        >>> ClassSettings().is_costly(6000, 196), ClassSettings().is_costly(60_000, 196)
        (False, True)
        """
        rows = min(rows, self.most_rows)
        return float(rows) * min(rows, self.inducing_rows) * columns > self.kernel_work

    @classmethod
    def of_effort(cls, effort: str) -> Self:
        """The settings of ``"quick"``, ``"auto"`` or ``"best"``, which is ``"auto"`` with twice the rows and steps.

        >>> ClassSettings.of_effort("quick").folds
        3
        """
        if effort == "quick":
            return cls(
                folds=3,
                most_rows=2000,
                learning_pairs=4 * 150.0**2,
                first_iterations=3,
                iterations=8,
                penalties=(1 / 8, 1 / 256),
                inducing_rows=565,
                train_steps=150,
                train_penalties=(0.001,),
            )
        if effort == "best":
            return cls(
                learning_pairs=24 * 330.0**2,
                learning_entries=7.2e7,
                first_iterations=16,
                iterations=40,
                inducing_rows=3130,
                train_steps=600,
            )
        return cls()


@dataclass(frozen=True, eq=False)
class ClassRows:
    """Distinct rows in a random order that depends on what they hold alone, and the class of each."""

    columns: tuple[Column, ...]  # C, in the table's order
    sites: tuple[Site, ...]  # N
    table: np.ndarray  # (B, N)
    codes: Rows
    labels: np.ndarray  # (B,): numbers of classes
    weights: np.ndarray  # (B,): factors of the loss
    shares: np.ndarray  # (K,): logarithms of the classes' shares
    folds: np.ndarray  # (B,): the fold that a row is held out of; -1 where every model sees it
    settings: ClassSettings
    bond: int | None = None  # the largest of a candidate; None for what each kind of them needs
    means: tuple[Tensor, ...] | None = None  # N of (I_n,): where sites are an earlier fit's, a state it had not seen

    @classmethod
    def read(cls, given: Examples, parameters: ResTTClassifier, target: Labels, seed: int) -> ClassRows:
        """Merge equal rows of a table, and fit columns and sites to them."""
        settings = ClassSettings.of_effort(parameters.effort)
        most = levels_beside(given.table.width, settings.most_levels, settings.most_states)
        columns = parameters._fit_columns(given, most)
        numbers, labels = read_numbers(columns, given.table), np.searchsorted(target.classes, given.y)
        return cls.of(columns, numbers, labels, given.weights, parameters, target, seed)

    @classmethod
    def of(
        cls,
        columns: tuple[Column, ...],
        table: np.ndarray,  # (B, N)
        labels: np.ndarray,  # (B,): numbers of classes
        weights: np.ndarray,  # (B,)
        parameters: ResTTClassifier,
        target: Labels,
        seed: int,
        sites: tuple[Site, ...] | None = None,
        means: tuple[Tensor, ...] | None = None,
    ) -> ClassRows:
        """Merge equal rows of numbers, and fit sites to them unless those of an earlier fit are given."""
        settings = ClassSettings.of_effort(parameters.effort)
        first, group = distinct(np.column_stack([table, labels]))
        order = content_order(table[first], labels[first, None].astype(float), seed)
        order = with_all_classes_first(order, labels[first])
        table, labels = table[first[order]], labels[first[order]]
        weights = np.bincount(group, weights)[order]
        if sites is None:
            levels = [None if column.levels is None else column.states for column in columns]
            knots = PriorSettings.of_effort(parameters.effort).knots(len(labels))
            if settings.is_costly(len(labels), len(columns)):
                knots = 2  # straight lines need no knot but their ends
            sites = fit_sites(table, weights, levels, knots)
        counts = pieces(table, weights, settings.folds)
        each = np.repeat(np.arange(len(labels)), counts)
        return cls(
            columns,
            sites,
            table[each],
            rows_of(sites, table[each]),
            labels[each],
            target.row_weights(target.classes[labels[each]], (weights / counts)[each]),
            target.initial_bias().numpy(),
            stratified_folds(labels, settings.folds, settings.judged_rows, counts),
            settings,
            None if isinstance(parameters.bond_dim, str) else int(parameters.bond_dim),
            means,
        )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.shares)

    @cached_property
    def judged(self) -> np.ndarray:  # (B,) bool
        """Rows that are held out of some fold."""
        return self.folds >= 0

    @property
    def is_judged(self) -> bool:
        """Whether two classes have rows enough, more than one each, to judge models by."""
        counts = np.bincount(self.labels)
        return bool((counts > 1).sum() > 1 and counts[counts > 1].sum() >= self.settings.fewest_rows)

    @cached_property
    def parts(self) -> tuple[np.ndarray, ...]:
        """The rows that each fold's models are fitted to."""
        return tuple(np.flatnonzero(self.folds != fold) for fold in range(int(self.folds.max()) + 1))

    @property
    def searches(self) -> int:
        """Number of times that a kernel is learned: by every fold and by all rows, once where there is one fold."""
        return 1 if len(self.parts) == 1 else len(self.parts) + 1

    @property
    def learned(self) -> int:
        """Number of rows that hyper-parameters are learned on."""
        own = self.settings
        return int((min(own.learning_pairs, own.learning_entries / len(self.sites)) / self.searches) ** 0.5)

    @cached_property
    def varying(self) -> tuple[int, ...]:
        """Sites of more than one value."""
        same = (self.table == self.table[:1]) | (np.isnan(self.table) & np.isnan(self.table[:1]))
        return tuple(np.flatnonzero(~same.all(axis=0)).tolist())

    @property
    def states(self) -> list[Tensor]:  # N of (B, I_n)
        """Site vectors."""
        return [self.vectors(n) for n in range(len(self.sites))]

    def vectors(self, n: int) -> Tensor:  # (B, I_n)
        """Site vectors of one column."""
        width = self.sites[n].width
        if self.means is None:
            return self.codes.vectors(n, width)
        states = self.codes.vectors(n, width + 1)
        return states[:, :-1] + states[:, -1:] * self.means[n]

    def first(self, count: int) -> ClassRows:
        """The first rows, a random sample, with folds of their own."""
        if count >= len(self):
            return self
        table, labels, weights = (part[:count] for part in (self.table, self.labels, self.weights))
        folds = stratified_folds(labels, self.settings.folds, self.settings.judged_rows)
        codes = self.codes.take(slice(count))
        return replace(self, table=table, labels=labels, weights=weights, folds=folds, codes=codes)

    def ordered(self, order: Sequence[int]) -> ClassRows:
        """The rows with their sites in another order."""
        codes = Rows(*(part[:, list(order)].contiguous() for part in (self.codes.code, self.codes.share)))
        sites, means = tuple(self.sites[n] for n in order), self.means and tuple(self.means[n] for n in order)
        return replace(self, sites=sites, table=self.table[:, list(order)], codes=codes, means=means)

    def held_out(self, logits: np.ndarray) -> np.ndarray:  # (…, F, B, K) -> (…, B, K)
        """Logits of each row by the fold that did not see it; the mean over folds where all saw it."""
        found = np.asarray(logits.mean(axis=-3))
        for fold in range(logits.shape[-3]):
            found[..., self.folds == fold, :] = logits[..., fold, self.folds == fold, :]
        return found


def with_all_classes_first(order: np.ndarray, labels: np.ndarray) -> np.ndarray:  # (B,), (B,) -> (B,)
    """Places of rows with one of every class first, so that every sample of the first rows has all classes.

    >>> with_all_classes_first(np.array([3, 2, 1, 0]), np.array([7, 5, 5, 5])).tolist()
    [3, 0, 2, 1]
    """
    heads = np.sort(np.unique(labels[order], return_index=True)[1])
    return np.concatenate([order[heads], np.delete(order, heads)])


def stratified_folds(
    labels: np.ndarray,  # (B,)
    count: int,
    judged: int,
    pieces: np.ndarray | None = None,  # (B,), of sum P
) -> np.ndarray:  # (P,)
    """The fold of each row, every class dealt out in turn; -1 for a class of one row, which every fold has to see.

    Of ``count`` folds only as many are held out as have ``judged`` rows together; the others are -1 too. A row of
    several ``pieces``, at most ``count``, is in as many folds, one after the other.

    >>> stratified_folds(np.array([0, 0, 1, 0, 0, 2, 1]), 2, 100).tolist()
    [0, 1, 0, 0, 1, -1, 1]
    >>> stratified_folds(np.array([0, 0, 1, 0, 0, 2, 1]), 2, 3).tolist()
    [0, -1, 0, 0, -1, -1, -1]
    >>> stratified_folds(np.array([0, 1, 1]), 3, 100, np.array([2, 2, 1])).tolist()
    [0, 1, 2, 0, 1]
    """
    each = labels if pieces is None else np.repeat(labels, pieces)
    folds = np.full(len(each), -1)
    dealt = 0
    for label in np.unique(labels):
        places = np.flatnonzero(each == label)
        if len(places) > 1:
            folds[places] = np.arange(dealt, dealt + len(places)) % count
            dealt += len(places)
    folds[folds >= -(-judged * count // len(each))] = -1
    return folds


def pieces(
    table: np.ndarray,  # (B, N), with the same row at most once for each class
    weights: np.ndarray,  # (B,)
    folds: int,
) -> np.ndarray:  # (B,)
    """Among how many folds each row is shared out: one, or where equal rows disagree as many as it stands for.

    They do where a tenth of those that are not alone, by weight, is beside an equal row of another class.

    >>> pieces(np.array([[1.0], [1.0], [2.0], [3.0]]), np.array([7.0, 3.0, 2.0, 1.0]), 5).tolist()
    [5, 3, 2, 1]
    >>> pieces(np.array([[1.0], [2.0]]), np.array([7.0, 3.0]), 5).tolist()
    [1, 1]
    """
    _, cell = distinct(table)
    disagrees = np.bincount(cell)[cell] > 1
    alone = ~disagrees & (weights < 2)
    if weights[disagrees].sum() <= 0.1 * weights[~alone].sum():
        return np.ones(len(weights), dtype=int)
    return np.clip(np.floor(weights), 1, folds).astype(int)
