"""Variances of a sum of boxes over all pairs of them, in C: a pair shares few columns, so most sites cost nothing."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from restt.chain.cpu import build
from restt.explain.trees.boxes import Boxes

SOURCE = Path(__file__).parent / "overlaps.c"
# Columns of a box, and boxes of one call.
MOST, _CHUNK = 64, 64

_INTEGERS = ("count", "sites", "outputs", "first", "last")
_POINTERS = (
    *("start", "site", "set", "low", "high", "missing", "alone", "table", "sets", "tables", "weights"),
    *("whole", "totals", "orders", "pairs"),
)


class _Given(ctypes.Structure):
    """``struct boxes`` of overlaps.c."""

    _fields_ = [*((name, ctypes.c_int64) for name in _INTEGERS), *((name, ctypes.c_void_p) for name in _POINTERS)]


def sweep(
    boxes: Boxes,
    means: Tensor,  # (N, I)
    absent: Tensor,  # (L,)
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:  # (D,), (N, D), (MOST+1, D), (N, N, D)
    """The variance, that of terms with each site, of each order, and with each pair; None without a compiler."""
    library = build.library(SOURCE)
    if library is None or boxes.degree > MOST:
        return None
    sites, outputs = len(boxes.sets), len(boxes.constant)
    low, high, missing, chosen = [], [], [], []
    table, tables, place = [], [np.zeros(0)], 0
    for sets, mean in zip(boxes.sets, means, strict=True):
        until = torch.nn.functional.pad(mean[: sets.width - 1].cumsum(0), (1, 0))
        low.append(until[sets.low])
        high.append(until[sets.high])
        missing.append(sets.missing * mean[sets.width - 1].clamp(min=0).sqrt())
        chosen.append(torch.arange(len(sets.low)))
        table.append(-1 if sets.table is None else place)
        if sets.table is not None:
            every = torch.arange(len(sets.low))
            tables.append(sets.overlap(every, every, mean[: sets.width]).numpy().ravel())
            place += len(tables[-1])
    line = torch.cat([group.line.flatten() for group in boxes.groups])
    sizes = [group.site.shape[1] for group in boxes.groups for _ in range(len(group.site))]
    held = {
        "start": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        "site": torch.cat([group.site.flatten() for group in boxes.groups]).numpy(),
        "set": torch.cat(chosen)[line].numpy(),
        **{
            name: torch.cat(parts)[line].double().contiguous().numpy()
            for name, parts in (("low", low), ("high", high), ("missing", missing))
        },
        "alone": absent[line].contiguous().numpy(),
        "table": np.array(table, dtype=np.int64),
        "sets": np.array([len(sets.low) for sets in boxes.sets], dtype=np.int64),
        "tables": np.concatenate(tables),
        "weights": torch.cat([group.weights for group in boxes.groups]).contiguous().numpy(),
    }
    shapes = {"whole": (outputs,), "totals": (sites, outputs), "orders": (MOST + 1, outputs)}
    shapes["pairs"] = (sites, sites, outputs)

    def part(first: int) -> list[np.ndarray]:
        found = {name: np.zeros(shape) for name, shape in shapes.items()}
        pointers = [{**held, **found}[name].ctypes.data for name in _POINTERS]
        given = _Given(len(sizes), sites, outputs, first, min(first + _CHUNK, len(sizes)), *pointers)
        if library.box_variances(ctypes.byref(given)):
            raise ValueError(f"a box constrains more than {MOST} columns")
        return list(found.values())

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        parts = list(pool.map(part, range(0, len(sizes), _CHUNK)))
    whole, totals, orders, pairs = (torch.from_numpy(np.sum(each, axis=0)) for each in zip(*parts, strict=True))
    return whole, totals, orders, pairs + pairs.transpose(0, 1)
