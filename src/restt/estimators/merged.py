"""Rows of a table of classes as they are judged: equal ones together, or shared out among folds.

A copy of a row tells nothing new, and a model that has seen one is not to be judged by the other: equal rows are one
row with the sum of their weights. But in a table of few different rows (three categories, answers from 1 to 5) they are
observations of their own, and where they have several classes it shows. Held out together, all the rows of one class
would be missing where those of the other are, and every model that had learned the shares would seem to be wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from restt.estimators.columns import Column, fit_columns, levels_beside, read_numbers
from restt.estimators.gradient import Examples
from restt.prior.rows import content_order

if TYPE_CHECKING:
    from restt.estimators.classifier import ResTTClassifier

# Equal rows are observations of their own where this share of those that are not alone, by weight, is beside an equal
# row of another class.
_DISAGREEING = 0.1
# Levels of a category that have a state of their own, and states of all columns in every member of the average.
_MOST_LEVELS, _MOST_STATES = 500, 3000


@dataclass(frozen=True, eq=False)
class Merged:
    """Equal rows as one with the sum of their weights, in a random order that depends on what they hold alone.

    So a repeated row is a row of weight 2. ``pieces``: among how many folds each may be shared out.
    """

    columns: tuple[Column, ...]
    numbers: np.ndarray  # (A, C), all rows as they were given
    table: np.ndarray  # (B, C)
    classes: np.ndarray  # (B,)
    weights: np.ndarray  # (B,)
    pieces: np.ndarray  # (B,)

    @classmethod
    def of(cls, given: Examples, parameters: ResTTClassifier, folds: int, seed: int = 0) -> Merged:
        columns = fit_columns(
            given.table,
            given.weights,
            parameters.categorical_features,
            parameters.handle_unknown,
            parameters.handle_missing,
            most_levels=levels_beside(given.table.width, _MOST_LEVELS, _MOST_STATES),
        )
        numbers = read_numbers(columns, given.table)
        classes = np.unique(given.y, return_inverse=True)[1].ravel()
        first, group = _distinct(np.column_stack([numbers, classes]))
        order = content_order(numbers[first], classes[first, None].astype(float), seed)
        first, weights = first[order], np.bincount(group, given.weights)[order]
        table = numbers[first]
        return cls(columns, numbers, table, classes[first], weights, pieces(table, weights, folds))


def pieces(
    table: np.ndarray,  # (B, N), with the same row at most once for each class
    weights: np.ndarray,  # (B,)
    folds: int,
) -> np.ndarray:  # (B,)
    """Among how many folds each row is shared out: one, or where equal rows disagree as many as it stands for.

    >>> pieces(np.array([[1.0], [1.0], [2.0], [3.0]]), np.array([7.0, 3.0, 2.0, 1.0]), 5).tolist()
    [5, 3, 2, 1]
    >>> pieces(np.array([[1.0], [2.0]]), np.array([7.0, 3.0]), 5).tolist()
    [1, 1]
    """
    _, cell = _distinct(table)
    disagrees = np.bincount(cell)[cell] > 1
    alone = ~disagrees & (weights < 2)
    if weights[disagrees].sum() <= _DISAGREEING * weights[~alone].sum():
        return np.ones(len(weights), dtype=int)
    return np.clip(np.floor(weights), 1, folds).astype(int)


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of rows (B, N) the first of each kind, and which kind each is; missing values are equal."""
    rows = rows + 0.0  # -0 becomes 0
    rows[np.isnan(rows)] = np.nan  # the same bits for all
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return first, group.ravel()
