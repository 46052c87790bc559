"""Trees as a sum of products over binned columns: a leaf is a box, one set of states in each column it constrains.

A column of numbers has a state for each bin between all thresholds of the ensemble, a column of categories one for each
code that some split names and one for all others; the last state of either is a missing value. The lines of
:class:`Products` are indicators of sets of states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from restt.explain.products import Group, Products
from restt.explain.trees.reader import Tree

# A set of states while a tree is read: bins low … high - 1 and the missing value, or a mask of a category's states.
Interval = tuple[int, int, bool]
Mask = bytes


@dataclass(frozen=True, eq=False)
class Column:
    """The states of one column."""

    cuts: np.ndarray  # (K,) growing: thresholds of numbers, codes of categories
    categorical: bool

    @property
    def width(self) -> int:
        """States: bins or codes and others, then missing."""
        return len(self.cuts) + 2

    def states(self, numbers: np.ndarray) -> np.ndarray:  # (B,) float64 -> (B,) int
        """The state of each value."""
        place = np.searchsorted(self.cuts, numbers, side="left")
        if self.categorical:
            place = np.where(np.append(self.cuts, np.nan)[place] == numbers, place, len(self.cuts))
        return np.where(np.isnan(numbers), self.width - 1, place)


@dataclass(frozen=True, eq=False)
class Sets:
    """The distinct sets of one column's states that boxes have."""

    width: int  # I
    low: Tensor  # (M,) bins from here
    high: Tensor  # (M,) to before here
    missing: Tensor  # (M,) whether a missing value is in
    table: Tensor | None = None  # (M, I) of categories, in place of the above

    def __len__(self) -> int:
        return len(self.low)

    def seen(self, x: Tensor) -> Tensor:  # (B, I) -> (M, B)
        """The mass of site vectors in each set: 0 or 1 of a row, the probability of a mean."""
        if self.table is not None:
            return self.table @ x.T
        until = torch.nn.functional.pad(x[:, :-1].cumsum(1), (1, 0)).T  # (I, B)
        return until[self.high] - until[self.low] + self.missing[:, None] * x[:, -1]

    def members(self, chosen: Tensor) -> Tensor:  # (J,) -> (J, I) float64
        """Indicators of the states in some of the sets."""
        if self.table is not None:
            return self.table[chosen]
        states = torch.arange(self.width)
        inside = (states >= self.low[chosen, None]) & (states < self.high[chosen, None])
        inside[:, -1] = self.missing[chosen]
        return inside.double()


def states_of(trees: Sequence[Tree], columns: int) -> list[Column]:
    """The states of each column: bins between all thresholds, codes of all lists."""
    cuts: list[set[float]] = [set() for _ in range(columns)]
    categorical = set()
    for tree in trees:
        for node in np.flatnonzero(tree.column >= 0).tolist():
            column = int(tree.column[node])
            cuts[column].update(tree.codes[node].tolist() if node in tree.codes else [tree.threshold[node]])
            if node in tree.codes:
                categorical.add(column)
    return [Column(np.array(sorted(own), dtype=np.float64), n in categorical) for n, own in enumerate(cuts)]


def boxes_of(trees: Sequence[Tree], columns: Sequence[Column], sites: Sequence[int], constant: np.ndarray) -> Products:
    """The leaves of all trees, equal boxes once; ``sites`` are the columns that some split reads."""
    place = {column: site for site, column in enumerate(sites)}
    numbered: list[dict[Interval | Mask, int]] = [{} for _ in sites]
    merged: dict[tuple[tuple[int, int], ...], np.ndarray] = {}
    for tree in trees:
        for box, value in _leaves(tree, columns):
            key = []
            for column, states in sorted(box.items()):
                site = place[column]
                key.append((site, numbered[site].setdefault(states, len(numbered[site]))))
            merged[tuple(key)] = merged.get(tuple(key), 0.0) + value
    constant = constant + merged.pop((), 0.0)
    merged = {key: value for key, value in merged.items() if value.any()}
    sets = [_sets(columns[column], list(own)) for column, own in zip(sites, numbered, strict=True)]
    starts = torch.tensor([0, *map(len, sets)]).cumsum(0)
    groups = []
    for size in sorted({len(key) for key in merged}):
        keys = [key for key in merged if len(key) == size]
        site, line = torch.tensor(keys).unbind(-1)  # (J, d)
        groups.append(Group(site, line + starts[site], torch.from_numpy(np.stack([merged[key] for key in keys]))))
    return Products(sets, groups, torch.from_numpy(np.array(constant, dtype=np.float64)))


def _leaves(tree: Tree, columns: Sequence[Column]) -> Iterator[tuple[dict[int, Interval | Mask], np.ndarray]]:
    """Every leaf that some row reaches: the states of the columns it constrains, and its value."""
    stack: list[tuple[int, dict[int, Interval | Mask]]] = [(0, {})]
    while stack:
        node, box = stack.pop()
        index = int(tree.column[node])
        if index < 0:
            yield {n: states for n, states in box.items() if states != _all(columns[n])}, tree.value[node]
            continue
        column = columns[index]
        parts = _split(tree, node, column, box.get(index, _all(column)))
        for child, states in zip((tree.left[node], tree.right[node]), parts, strict=True):
            if states is not None:
                stack.append((int(child), {**box, index: states}))


def _all(column: Column) -> Interval | Mask:
    return b"\1" * column.width if column.categorical else (0, column.width - 1, True)


def _split(
    tree: Tree, node: int, column: Column, states: Interval | Mask
) -> tuple[Interval | Mask | None, Interval | Mask | None]:
    """The states that go left and right; None for none at all."""
    missing_left = bool(tree.missing_left[node])
    if not isinstance(states, bytes):
        low, high, missing = states
        cut = int(np.searchsorted(column.cuts, tree.threshold[node])) + 1
        left = (low, max(low, min(high, cut)), missing and missing_left)
        right = (min(high, max(low, cut)), high, missing and not missing_left)
        # An empty interval is one set, wherever it lies.
        parts = [(0, 0, each[2]) if each[0] >= each[1] else each for each in (left, right)]
        return tuple(None if each == (0, 0, False) else each for each in parts)  # type: ignore[return-value]
    goes_left = np.full(column.width, not tree.listed_left)
    goes_left[np.searchsorted(column.cuts, tree.codes[node])] = tree.listed_left
    goes_left[-1] = missing_left
    inside = np.frombuffer(states, dtype=bool)
    masks = (inside & goes_left, inside & ~goes_left)
    return tuple(mask.tobytes() if mask.any() else None for mask in masks)  # type: ignore[return-value]


def _sets(column: Column, listed: list[Interval | Mask]) -> Sets:
    if column.categorical:
        masks = [np.frombuffer(mask, dtype=bool) for mask in listed if isinstance(mask, bytes)]
        table = np.stack(masks) if masks else np.zeros((0, column.width), dtype=bool)
        none = torch.zeros(len(table), dtype=torch.int64)
        return Sets(column.width, none, none, none.bool(), torch.from_numpy(table).double())
    parts = torch.tensor([[int(part) for part in each] for each in listed], dtype=torch.int64).reshape(-1, 3)
    return Sets(column.width, parts[:, 0], parts[:, 1], parts[:, 2].bool())
