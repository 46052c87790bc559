"""Variances of a sum of boxes, over all pairs of them, in C: a pair shares few columns, so most sites cost nothing."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from restt.chain.cpu import build
from restt.explain.gram import Gram
from restt.explain.products import Products, ProductTrain
from restt.explain.trees.boxes import Sets

SOURCE = Path(__file__).parent / "box_variances.c"
# Columns of a box, and boxes of one call.
MOST, _CHUNK = 64, 64

_INTEGERS = ("count", "sites", "outputs", "first", "last")
_POINTERS = (
    *("start", "site", "set", "low", "high", "missing", "alone", "table", "sets", "tables", "weights"),
    *("whole", "totals", "orders", "pairs"),
)


class _Arguments(ctypes.Structure):
    """``struct boxes`` of box_variances.c."""

    _fields_ = [*((name, ctypes.c_int64) for name in _INTEGERS), *((name, ctypes.c_void_p) for name in _POINTERS)]


class BoxTrain(ProductTrain):
    """Boxes centred at the probabilities (N, I) of their columns' states."""

    def moments(self, covariances: Tensor | None) -> BoxGram:
        """Variances under independent sites; the covariances of states follow from their means."""

        def features(site: int, chosen: Tensor | slice) -> Tensor:  # (J, I)
            """Centred indicators of states, scaled such that their products sum to covariances."""
            sets, mean, own = self.products.lines[site], self.means[site], line[chosen, site]
            assert isinstance(sets, Sets)
            inside = sets.members((own - self.products.starts[site]).clamp(min=0)) - absent[chosen, site, None]
            return inside * mean[: sets.width].clamp(min=0).sqrt() * (own >= 0)[:, None]

        weights, absent, line, constant = self.parts()
        return BoxGram(weights, absent, line, constant, features, self.products, self.means)


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
        missing = max(0, highest + 1 - len(orders))
        return whole, totals, torch.nn.functional.pad(orders, (0, 0, 0, missing))[: highest + 1]

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
    low, high, missing, chosen = [], [], [], []
    table, tables, place = [], [np.zeros(0)], 0
    for sets, mean in zip(boxes.lines, means, strict=True):
        assert isinstance(sets, Sets)
        own = mean[: sets.width]
        until = torch.nn.functional.pad(own[:-1].cumsum(0), (1, 0))
        low.append(until[sets.low])
        high.append(until[sets.high])
        missing.append(sets.missing * own[-1].clamp(min=0).sqrt())
        chosen.append(torch.arange(len(sets)))
        table.append(-1 if sets.table is None else place)
        if sets.table is not None:
            tables.append(((sets.table * own) @ sets.table.T).numpy().ravel())
            place += len(tables[-1])
    line = torch.cat([group.line.flatten() for group in boxes.groups])
    sizes = [group.site.shape[1] for group in boxes.groups for _ in range(len(group.site))]
    given = {
        "start": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        "site": torch.cat([group.site.flatten() for group in boxes.groups]).numpy(),
        "set": torch.cat(chosen)[line].numpy(),
        **{
            name: torch.cat(parts)[line].double().contiguous().numpy()
            for name, parts in (("low", low), ("high", high), ("missing", missing))
        },
        "alone": boxes.seen(means[None])[line, 0].contiguous().numpy(),
        "table": np.array(table, dtype=np.int64),
        "sets": np.array([len(sets) for sets in boxes.lines], dtype=np.int64),
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

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        parts = list(pool.map(part, range(0, len(sizes), _CHUNK)))
    whole, totals, orders, pairs = (torch.from_numpy(np.sum(each, axis=0)) for each in zip(*parts, strict=True))
    return whole, totals, orders, pairs + pairs.transpose(0, 1)
