"""Trees as a sum of products over binned columns: a leaf is a box, one set of states in each column it constrains.

A column of numbers has a state for each bin between all thresholds of the ensemble, a column of categories one for each
code that some split names and one for all others; the last state of either is a missing value. The lines of
:class:`Products` are indicators of sets of states. Variances are sums over all pairs of boxes, in C: a pair shares few
columns, so most sites cost nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from restt._common.devices import in_threads
from restt.chain.cpu import build
from restt.explain.products import Gram, Group, Products, ProductTrain
from restt.explain.trees.reader import Tree

SOURCE = Path(__file__).parent / "boxes.c"
# Columns of a box, and boxes of one call.
MOST, _CHUNK = 64, 64

_INTEGERS = ("count", "sites", "outputs", "first", "last")
_POINTERS = (
    *("start", "site", "set", "entry", "table", "sets", "tables", "weights"),
    *("whole", "totals", "orders", "pairs"),
)

# A set of states while a tree is read: bins low … high - 1 and the missing value, or those of a category.
Interval = tuple[int, int, bool]
States = Interval | frozenset[int]


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

    @property
    def every(self) -> States:
        """All states."""
        return frozenset(range(self.width)) if self.categorical else (0, self.width - 1, True)

    def split(self, tree: Tree, node: int, states: States) -> tuple[States, States]:
        """The states that go left and right at a node, maybe none."""
        missing_left = bool(tree.missing_left[node])
        if isinstance(states, frozenset):
            listed = frozenset(np.searchsorted(self.cuts, tree.codes[node]).tolist())
            left = listed if tree.listed_left else self.every - listed  # type: ignore[operator]
            left = left | {self.width - 1} if missing_left else left - {self.width - 1}
            return states & left, states - left
        low, high, missing = states
        cut = min(max(low, int(np.searchsorted(self.cuts, tree.threshold[node])) + 1), high)
        parts = (low, cut, missing and missing_left), (cut, high, missing and not missing_left)
        # An empty interval is one set, wherever it lies.
        left, right = ((0, 0, part[2]) if part[0] >= part[1] else part for part in parts)
        return left, right


_NONE: tuple[States, States] = (0, 0, False), frozenset()


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


def states_of(trees: Sequence[Tree], columns: int) -> tuple[Column, ...]:
    """The states of each column: bins between all thresholds, codes of all lists."""
    cuts: list[set[float]] = [set() for _ in range(columns)]
    categorical = set()
    for tree in trees:
        for node in np.flatnonzero(tree.column >= 0).tolist():
            column = int(tree.column[node])
            cuts[column].update(tree.codes[node].tolist() if node in tree.codes else [tree.threshold[node]])
            if node in tree.codes:
                categorical.add(column)
    return tuple(Column(np.array(sorted(own), dtype=np.float64), n in categorical) for n, own in enumerate(cuts))


def boxes_of(trees: Sequence[Tree], columns: Sequence[Column], sites: Sequence[int], constant: np.ndarray) -> Products:
    """The leaves of all trees, equal boxes once; ``sites`` are the columns that some split reads."""
    place = {column: site for site, column in enumerate(sites)}
    numbered: list[dict[States, int]] = [{} for _ in sites]
    merged: dict[tuple[tuple[int, int], ...], np.ndarray] = {}
    for tree in trees:
        for box, value in _leaves(tree, columns):
            named = [(place[column], states) for column, states in sorted(box.items())]
            key = tuple((n, numbered[n].setdefault(states, len(numbered[n]))) for n, states in named)
            merged[key] = merged.get(key, 0.0) + value
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


def _leaves(tree: Tree, columns: Sequence[Column]) -> Iterator[tuple[dict[int, States], np.ndarray]]:
    """Every leaf that some row reaches: the states of the columns it constrains, and its value."""
    stack: list[tuple[int, dict[int, States]]] = [(0, {})]
    while stack:
        node, box = stack.pop()
        index = int(tree.column[node])
        if index < 0:
            yield {n: states for n, states in box.items() if states != columns[n].every}, tree.value[node]
            continue
        parts = columns[index].split(tree, node, box.get(index, columns[index].every))
        for child, states in zip((tree.left[node], tree.right[node]), parts, strict=True):
            if states not in _NONE:
                stack.append((int(child), {**box, index: states}))


def _sets(column: Column, listed: list[States]) -> Sets:
    parts = torch.tensor([(0, 0, 0) if isinstance(own, frozenset) else own for own in listed]).long().reshape(-1, 3)
    table = None
    if column.categorical:
        table = torch.zeros(len(listed), column.width, dtype=torch.float64)
        for row, states in zip(table, listed, strict=True):
            row[list(states)] = 1.0
    return Sets(column.width, parts[:, 0], parts[:, 1], parts[:, 2].bool(), table)


class _Arguments(ctypes.Structure):
    """``struct boxes`` of boxes.c."""

    _fields_ = [*((name, ctypes.c_int64) for name in _INTEGERS), *((name, ctypes.c_void_p) for name in _POINTERS)]


class BoxTrain(ProductTrain):
    """Boxes centred at the probabilities (N, I) of their columns' states."""

    def moments(self, covariances: Tensor | None) -> BoxGram:
        """Variances under independent sites; the covariances of states follow from their means."""

        def features(site: int, chosen: Tensor | slice) -> Tensor:  # (J, I)
            """Centred indicators of states, scaled such that their products sum to covariances."""
            sets, mean, own = self.products.lines[site], self.means[site], line[chosen, site]
            inside = sets.members((own - self.products.starts[site]).clamp(min=0)) - absent[chosen, site, None]
            return inside * mean[: sets.width].clamp(min=0).sqrt() * (own >= 0)[:, None]

        weights, absent, line, constant = self.parts()
        return BoxGram(weights, absent, line >= 0, constant, features, self.products, self.means)


@dataclass(frozen=True, eq=False)
class BoxGram(Gram):
    """:class:`Gram` of indicators, in C where there is a compiler."""

    boxes: Products
    means: Tensor  # (N, I)

    @cached_property
    def _swept(self) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        return sweep(self.boxes, self.means)

    def variances(self, highest: int) -> tuple[Tensor, Tensor, Tensor]:  # (D,), (N, D), (highest+1, D)
        """The variance, that of all terms with each site, and that of all terms of each order; 0 for order 0."""
        if self._swept is None:
            return super().variances(highest)
        whole, totals, orders, _ = self._swept
        return whole, totals, torch.nn.functional.pad(orders, (0, 0, 0, highest))[: highest + 1]

    def containing(self) -> Tensor:  # (N, N, D)
        """The variance of all terms that contain both sites of each pair."""
        return super().containing() if self._swept is None else self._swept[3]


def sweep(boxes: Products, means: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """The variance (D,), that of terms with each site (N, D), of each order (MOST+1, D), with each pair (N, N, D).

    None without a compiler, or where a box has too many columns.
    """
    library = build.library(SOURCE)
    if library is None or boxes.degree > MOST or not boxes.groups:
        return None
    sites, outputs = boxes.sites, len(boxes.constant)
    entries, places, tables = [], [], [np.zeros(0)]
    for sets, mean in zip(boxes.lines, means, strict=True):
        own = mean[: sets.width]
        until = torch.nn.functional.pad(own[:-1].cumsum(0), (1, 0))
        missing = sets.missing * own[-1].clamp(min=0).sqrt()
        entries.append(torch.stack([until[sets.low], until[sets.high], missing, sets.seen(own[None])[:, 0]], 1))
        places.append(-1 if sets.table is None else sum(map(len, tables)))
        if sets.table is not None:
            tables.append(((sets.table * own) @ sets.table.T).numpy().ravel())
    line, site = (torch.cat([getattr(group, n).flatten() for group in boxes.groups]) for n in ("line", "site"))
    sizes = [group.site.shape[1] for group in boxes.groups for _ in range(len(group.site))]
    given = {
        "start": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        "site": site.numpy(),
        "set": (line - torch.tensor(boxes.starts)[site]).numpy(),
        "entry": torch.cat(entries)[line].numpy(),
        "table": np.array(places, dtype=np.int64),
        "sets": np.array(list(map(len, boxes.lines)), dtype=np.int64),
        "tables": np.concatenate(tables),
        "weights": torch.cat([group.weights for group in boxes.groups]).contiguous().numpy(),
    }
    shapes = {"whole": (outputs,), "totals": (sites, outputs), "orders": (MOST + 1, outputs)}
    shapes["pairs"] = (sites, sites, outputs)

    def part(first: int) -> list[np.ndarray]:
        results = {name: np.zeros(shape) for name, shape in shapes.items()}
        pointers = [{**given, **results}[name].ctypes.data for name in _POINTERS]
        last = min(first + _CHUNK, len(sizes))
        library.box_variances(ctypes.byref(_Arguments(len(sizes), sites, outputs, first, last, *pointers)))
        return list(results.values())

    parts = in_threads(part, range(0, len(sizes), _CHUNK), torch.get_num_threads())
    whole, totals, orders, pairs = (torch.from_numpy(np.sum(each, axis=0)) for each in zip(*parts, strict=True))
    return whole, totals, orders, pairs + pairs.transpose(0, 1)
