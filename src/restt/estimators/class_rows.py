"""Rows of a table of classes as a classifier is fitted and judged on: equal ones merged, dealt out to folds.

A copy of a row tells nothing new, and a model that has seen one is not to be judged by the other: equal rows are one
row with the sum of their weights. But in a table of few different rows (three categories, answers from 1 to 5) they are
observations of their own, and where they have several classes it shows. Held out together, all the rows of one class
would be missing where those of the other are, and every model that had learned the shares would seem to be wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from restt.estimators.class_settings import ClassSettings
from restt.estimators.columns import Column, fit_columns, levels_beside, read_numbers
from restt.estimators.gradient import Examples
from restt.estimators.targets import Labels
from restt.prior import Site
from restt.prior.pairs import Rows
from restt.prior.rows import content_order
from restt.prior.sites import fit_sites, rows_of

if TYPE_CHECKING:
    from restt.estimators.classifier import ResTTClassifier


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

    @classmethod
    def read(cls, given: Examples, parameters: ResTTClassifier, target: Labels, seed: int) -> ClassRows:
        """Merge equal rows of a table, and fit columns and sites to them."""
        settings = ClassSettings.of_effort(parameters.effort)
        wide = given.table.width > settings.most_columns
        columns = fit_columns(
            given.table,
            given.weights,
            parameters.categorical_features,
            parameters.handle_unknown,
            parameters.handle_missing,
            most_levels=levels_beside(given.table.width, settings.most_levels, settings.most_states),
        )
        table = read_numbers(columns, given.table)
        labels = np.searchsorted(target.classes, given.y)
        first, group = _distinct(np.column_stack([table, labels]))
        order = content_order(table[first], labels[first, None].astype(float), seed)
        # One row of every class first, so that every sample of the first rows has all classes.
        heads = np.sort(np.unique(labels[first[order]], return_index=True)[1])
        order = np.concatenate([order[heads], np.delete(order, heads)])
        table, labels = table[first[order]], labels[first[order]]
        weights = np.bincount(group, given.weights)[order]
        levels = [None if column.levels is None else column.states for column in columns]
        # Straight lines alone need no knot but their ends.
        sites = fit_sites(table, weights, levels, 2 if wide else settings.knots, average=False)
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
            stratified_folds(labels, settings.folds, counts),
            settings,
            None if isinstance(parameters.bond_dim, str) else int(parameters.bond_dim),
        )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        """How many classes there are."""
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

    @cached_property
    def varying(self) -> tuple[int, ...]:
        """Sites of more than one value."""
        same = (self.table == self.table[:1]) | (np.isnan(self.table) & np.isnan(self.table[:1]))
        return tuple(np.flatnonzero(~same.all(axis=0)).tolist())

    @property
    def states(self) -> list[Tensor]:  # N of (B, I_n)
        """Site vectors."""
        return [self.codes.vectors(n, site.width) for n, site in enumerate(self.sites)]

    def first(self, count: int) -> ClassRows:
        """The first rows, a random sample, with folds of their own."""
        if count >= len(self):
            return self
        table, labels, weights = (part[:count] for part in (self.table, self.labels, self.weights))
        folds = stratified_folds(labels, self.settings.folds)
        codes = self.codes.take(slice(count))
        return replace(self, table=table, labels=labels, weights=weights, folds=folds, codes=codes)

    def ordered(self, order: Sequence[int]) -> ClassRows:
        """The rows with their sites in another order."""
        codes = Rows(*(part[:, list(order)].contiguous() for part in (self.codes.code, self.codes.share)))
        return replace(self, sites=tuple(self.sites[n] for n in order), table=self.table[:, list(order)], codes=codes)

    def held_out(self, logits: np.ndarray) -> np.ndarray:  # (…, F, B, K) -> (…, B, K)
        """Logits of each row by the fold that did not see it; the mean over folds where all saw it."""
        found = np.asarray(logits.mean(axis=-3))
        for fold in range(logits.shape[-3]):
            found[..., self.folds == fold, :] = logits[..., fold, self.folds == fold, :]
        return found


def stratified_folds(
    labels: np.ndarray,  # (B,)
    count: int,
    pieces: np.ndarray | None = None,  # (B,), of sum P
) -> np.ndarray:  # (P,)
    """The fold of each row, every class dealt out in turn; -1 for a class of one row, which every fold has to see.

    A row of several ``pieces``, at most ``count``, is in as many folds, one after the other.

    >>> stratified_folds(np.array([0, 0, 1, 0, 0, 2, 1]), 2).tolist()
    [0, 1, 0, 0, 1, -1, 1]
    >>> stratified_folds(np.array([0, 1, 1]), 3, np.array([2, 2, 1])).tolist()
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
    return folds


def pieces(
    table: np.ndarray,  # (B, N), with the same row at most once for each class
    weights: np.ndarray,  # (B,)
    folds: int,
    disagreeing: float = 0.1,
) -> np.ndarray:  # (B,)
    """Among how many folds each row is shared out: one, or where equal rows disagree as many as it stands for.

    They do where the share ``disagreeing`` of those that are not alone, by weight, is beside an equal row of another
    class.

    >>> pieces(np.array([[1.0], [1.0], [2.0], [3.0]]), np.array([7.0, 3.0, 2.0, 1.0]), 5).tolist()
    [5, 3, 2, 1]
    >>> pieces(np.array([[1.0], [2.0]]), np.array([7.0, 3.0]), 5).tolist()
    [1, 1]
    """
    _, cell = _distinct(table)
    disagrees = np.bincount(cell)[cell] > 1
    alone = ~disagrees & (weights < 2)
    if weights[disagrees].sum() <= disagreeing * weights[~alone].sum():
        return np.ones(len(weights), dtype=int)
    return np.clip(np.floor(weights), 1, folds).astype(int)


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of rows (B, N) the first of each kind, and which kind each is; missing values are equal."""
    rows = rows + 0.0  # -0 becomes 0
    rows[np.isnan(rows)] = np.nan  # the same bits for all
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return first, group.ravel()
