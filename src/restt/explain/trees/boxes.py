"""Trees as a sum of products over binned columns: a leaf is a box, one set of states in each column it constrains.

A column of numbers has a state for each bin between all thresholds of the ensemble, a column of categories one for each
code that some split names and one for all others; the last state of either is a missing value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from restt.explain.memory import MEMORY, slices
from restt.prior.functionals import without_each

# A set of states while a tree is read: bins low … high - 1 and the missing value, or a mask of a category's states.
Interval = tuple[int, int, bool]
Mask = bytes


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree as arrays over its nodes; ``column`` is -1 at a leaf.

    A number goes left where it is not above the threshold. A category goes left where its code is in the node's list,
    or, without ``listed_left``, where it is not.
    """

    column: np.ndarray  # (K,) int
    left: np.ndarray  # (K,) int
    right: np.ndarray  # (K,) int
    threshold: np.ndarray  # (K,) float64
    missing_left: np.ndarray  # (K,) bool
    value: np.ndarray  # (K, D) of leaves
    codes: dict[int, np.ndarray] = field(default_factory=dict)  # by node
    listed_left: bool = True


@dataclass(frozen=True, eq=False)
class Column:
    """The states of one column."""

    thresholds: np.ndarray | None  # (K,) growing; None for categories
    codes: np.ndarray | None = None  # (K,) growing

    @property
    def width(self) -> int:
        """States: bins or codes and others, then missing."""
        known = self.thresholds if self.thresholds is not None else self.codes
        assert known is not None
        return len(known) + 2

    def states(self, numbers: np.ndarray) -> np.ndarray:  # (B,) float64 -> (B,) int
        """The state of each value."""
        missing = np.isnan(numbers)
        if self.thresholds is not None:
            found = np.searchsorted(self.thresholds, numbers, side="left")
        else:
            assert self.codes is not None
            found = np.searchsorted(self.codes, numbers, side="left")
            known = np.append(self.codes, np.nan)[found] == numbers
            found = np.where(known, found, len(self.codes))
        return np.where(missing, self.width - 1, found)


@dataclass(frozen=True, eq=False)
class Sets:
    """The distinct sets of one column's states that boxes have."""

    width: int  # I
    low: Tensor  # (M,) bins from here
    high: Tensor  # (M,) to before here
    missing: Tensor  # (M,) whether a missing value is in
    table: Tensor | None = None  # (M, I) of categories, in place of the above

    def mass(self, x: Tensor) -> Tensor:  # (B, I) -> (M, B)
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

    def overlap(self, ours: Tensor, theirs: Tensor, mean: Tensor) -> Tensor:  # (J,), (K,), (I,) -> (J, K)
        """The probability of each pair's intersection."""
        if self.table is not None:
            return (self.table[ours] * mean) @ self.table[theirs].T
        until = torch.nn.functional.pad(mean[:-1].cumsum(0), (1, 0))
        low = torch.maximum(until[self.low[ours]][:, None], until[self.low[theirs]])
        found = torch.minimum(until[self.high[ours]][:, None], until[self.high[theirs]]).sub_(low).clamp_(min=0)
        return found.addr_(self.missing[ours] * mean[-1], self.missing[theirs].double())


@dataclass(frozen=True, eq=False)
class Group:
    """Boxes that constrain the same number of columns d."""

    site: Tensor  # (J, d)
    line: Tensor  # (J, d) the set, counted over all sites
    weights: Tensor  # (J, D)

    def blocks(self, numbers: int) -> Iterator[Group]:
        """Parts of so many boxes that ``numbers`` of each fit into memory."""
        for part in slices(len(self.site), max(16, MEMORY.block // (8 * max(1, numbers)))):
            yield Group(self.site[part], self.line[part], self.weights[part])


@dataclass(frozen=True, eq=False)
class Boxes:
    """A sum of weighted boxes and a constant."""

    sets: tuple[Sets, ...]  # N
    groups: tuple[Group, ...]
    constant: Tensor  # (D,)

    @property
    def degree(self) -> int:
        """The most columns that one box constrains."""
        return max((group.site.shape[1] for group in self.groups), default=1)

    @property
    def count(self) -> int:
        """The number of boxes."""
        return sum(len(group.site) for group in self.groups)

    @property
    def starts(self) -> list[int]:  # N
        """The first line of each site."""
        return [0, *np.cumsum([len(each.low) for each in self.sets]).tolist()[:-1]]

    def lines(self, x: Tensor) -> Tensor:  # (B, N, I) -> (L, B)
        """The mass of site vectors in the sets of all sites."""
        return torch.cat([each.mass(x[:, n, : each.width]) for n, each in enumerate(self.sets)])

    def values(self, x: Tensor) -> Tensor:  # (B, N, I) -> (B, D)
        """The sum at site vectors; gradients flow to x."""
        lines, total = self.lines(x), self.constant.expand(len(x), -1)
        for group in self.groups:
            for part in group.blocks(len(x) * group.site.shape[1]):
                inside = lines[part.line[:, 0]]
                for place in range(1, part.line.shape[1]):
                    inside = inside * lines[part.line[:, place]]
                total = total + inside.T @ part.weights
        return total

    def row_slices(self, rows: int) -> Iterator[slice]:
        """Slices of rows, fewer at once where there are many distinct sets."""
        lines = sum(len(each.low) for each in self.sets)
        return slices(rows, max(1, min(MEMORY.rows, 2 * MEMORY.cpu // max(1, lines))))

    def path_slopes(
        self,
        starts: Tensor,  # (B, N, I)
        way: Tensor,  # (B, N, I)
        nodes: Tensor,  # (K,)
        weights: Tensor,  # (K,)
    ) -> Tensor:  # (B, N, D)
        """Σ_k weight · derivative at start + t_k·way along the part of ``way`` in each site."""
        found = way.new_zeros(len(way), len(self.sets), len(self.constant))
        for rows in self.row_slices(len(way)):
            at, along, total = self.lines(starts[rows]), self.lines(way[rows]), found[rows].transpose(0, 1)  # (N, B, D)
            for group in self.groups:
                for part in group.blocks(at.shape[1]):
                    start, moved = ([lines[line] for line in part.line.T] for lines in (at, along))  # d of (J, B)
                    slopes = [torch.zeros_like(each) for each in moved]
                    for t, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
                        values = [torch.add(a, v, alpha=t) for a, v in zip(start, moved, strict=True)]
                        for slope, rest in zip(slopes, without_each(values), strict=True):
                            slope.add_(rest, alpha=weight)
                    for site, slope, v in zip(part.site.T, slopes, moved, strict=True):
                        slope.mul_(v)
                        for d in range(total.shape[-1]):
                            total[:, :, d].index_add_(0, site, slope * part.weights[:, d, None])
        return found


def states_of(trees: Sequence[Tree], columns: int, categories: Sequence[int] = ()) -> list[Column]:
    """The states of each column: bins between all thresholds, codes of all lists."""
    thresholds: list[set[float]] = [set() for _ in range(columns)]
    for tree in trees:
        for node in np.flatnonzero(tree.column >= 0).tolist():
            named = tree.codes[node].tolist() if node in tree.codes else [tree.threshold[node]]
            thresholds[tree.column[node]].update(named)
    sorted_ = [np.array(sorted(found), dtype=np.float64) for found in thresholds]
    return [Column(None, found) if n in categories else Column(found) for n, found in enumerate(sorted_)]


def boxes_of(trees: Sequence[Tree], columns: Sequence[Column], sites: Sequence[int], constant: np.ndarray) -> Boxes:
    """The leaves of all trees, equal boxes once; ``sites`` are the columns that some split reads."""
    place = {column: site for site, column in enumerate(sites)}
    numbered: list[dict[Interval | Mask, int]] = [{} for _ in sites]
    merged: dict[tuple[tuple[int, int], ...], np.ndarray] = {}
    constant = np.array(constant, dtype=np.float64)
    for tree in trees:
        for box, value in _leaves(tree, columns):
            key = []
            for column, states in sorted(box.items()):
                site = place[column]
                key.append((site, numbered[site].setdefault(states, len(numbered[site]))))
            if not key:
                constant += value
            elif tuple(key) in merged:
                merged[tuple(key)] = merged[tuple(key)] + value
            else:
                merged[tuple(key)] = value
    merged = {key: value for key, value in merged.items() if value.any()}
    sets = tuple(_sets(columns[column], list(found)) for column, found in zip(sites, numbered, strict=True))
    starts = [0, *np.cumsum([len(found) for found in numbered]).tolist()]
    groups = []
    for size in sorted({len(key) for key in merged}):
        keys = torch.tensor([key for key in merged if len(key) == size])  # (J, d, 2)
        weights = np.stack([merged[key] for key in merged if len(key) == size])
        line = keys[..., 1] + torch.tensor(starts)[keys[..., 0]]
        groups.append(Group(keys[..., 0].contiguous(), line.contiguous(), torch.from_numpy(weights)))
    return Boxes(sets, tuple(groups), torch.from_numpy(constant))


def _leaves(tree: Tree, columns: Sequence[Column]) -> Iterator[tuple[dict[int, Interval | Mask], np.ndarray]]:
    """Every leaf that some row reaches: the states of the columns it constrains, and its value."""
    stack: list[tuple[int, dict[int, Interval | Mask]]] = [(0, {})]
    while stack:
        node, box = stack.pop()
        index = int(tree.column[node])
        if index < 0:
            yield {n: states for n, states in box.items() if not _is_all(columns[n], states)}, tree.value[node]
            continue
        column = columns[index]
        held = box.get(index, _all(column))
        for child, states in zip((tree.left[node], tree.right[node]), _split(tree, node, column, held), strict=True):
            if states is not None:
                stack.append((int(child), {**box, index: states}))


def _all(column: Column) -> Interval | Mask:
    return (0, column.width - 1, True) if column.thresholds is not None else b"\1" * column.width


def _is_all(column: Column, states: Interval | Mask) -> bool:
    return states == _all(column)


def _split(
    tree: Tree, node: int, column: Column, held: Interval | Mask
) -> tuple[Interval | Mask | None, Interval | Mask | None]:
    """The states that go left and right; None for none at all."""
    missing_left = bool(tree.missing_left[node])
    if column.thresholds is not None:
        assert not isinstance(held, bytes)
        low, high, missing = held
        cut = int(np.searchsorted(column.thresholds, tree.threshold[node])) + 1
        left = (low, max(low, min(high, cut)), missing and missing_left)
        right = (min(high, max(low, cut)), high, missing and not missing_left)
        # An empty interval is one set, wherever it lies.
        parts = [(0, 0, each[2]) if each[0] >= each[1] else each for each in (left, right)]
        return tuple(None if each == (0, 0, False) else each for each in parts)  # type: ignore[return-value]
    assert isinstance(held, bytes)
    assert column.codes is not None
    goes_left = np.full(column.width, not tree.listed_left)
    goes_left[np.searchsorted(column.codes, tree.codes[node])] = tree.listed_left
    goes_left[-1] = missing_left
    inside = np.frombuffer(held, dtype=bool)
    masks = (inside & goes_left, inside & ~goes_left)
    return tuple(mask.tobytes() if mask.any() else None for mask in masks)  # type: ignore[return-value]


def _sets(column: Column, found: list[Interval | Mask]) -> Sets:
    if column.thresholds is None:
        masks = [np.frombuffer(mask, dtype=bool) for mask in found if isinstance(mask, bytes)]
        table = np.stack(masks) if masks else np.zeros((0, column.width), dtype=bool)
        none = torch.zeros(len(table), dtype=torch.int64)
        return Sets(column.width, none, none, none.bool(), torch.from_numpy(table).double())
    parts = torch.tensor([[int(part) for part in each] for each in found], dtype=torch.int64).reshape(-1, 3)
    return Sets(column.width, parts[:, 0], parts[:, 1], parts[:, 2].bool())
