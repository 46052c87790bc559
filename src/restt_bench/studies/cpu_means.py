"""How the fused CPU path came to be C: the same forward sweep by several means, and where the tree pays.

All take turns; times are of one thread's own processor time, so that other work on the machine counts little. One
column of ``means`` needs numba and is left out without it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import restt
from restt_bench.case import Settings
from restt_bench.suites import IMAGE, QUICK_IMAGE
from restt_bench.timing import summarise

if TYPE_CHECKING:
    from rich.console import Console

LANES = 16  # samples per tile of the numba kernel, as in the compiled one
ROUNDS = 15


@torch.no_grad()
def means(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """The forward sweep as bare products, by torch in two orders, by the compiled path and by numba."""
    base = QUICK_IMAGE if settings.quick else IMAGE
    rounds = min(settings.rounds, ROUNDS)
    table: dict[str, dict[str, dict[str, float]]] = {}
    with _one_thread():
        for bond in (4,) if settings.quick else (20, 50, 100):
            times = _in_turn(_ways(base.sites, base.batch, bond), rounds)
            limit = summarise(times["bare GEMMs"])
            rows = table[f"r={bond}"] = {}
            for name, taken in times.items():
                found = summarise(taken)
                rows[name] = {
                    "median ms": round(1e3 * found.median, 3),
                    "fastest ms": round(1e3 * found.fastest, 3),
                    "median / GEMM": round(found.median / limit.median, 3),
                    "fastest / GEMM": round(found.fastest / limit.fastest, 3),
                }
                console.print(f"r={bond} {name}: {rows[name]['median / GEMM']:.2f} × GEMM")
    sizes = {"sites": base.sites, "feature_dim": 2, "batch": base.batch, "threads": 1, "rounds": rounds}
    title = "The forward sweep by several means, one thread, processor time"
    return {"title": title, "sizes": sizes, "table": table, "targets": []}


def crossover(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """Eager, tree and fused_cpu for few samples; the tree's work per site is B·(R+1)³."""
    sizes: tuple[tuple[int, ...], ...] = ((16, 64, 256, 1000), (2, 4, 8, 16), (1, 4, 16, 64))
    if settings.quick:
        sizes = ((16,), (2, 4), (1, 4))
    rows = []
    with _one_thread():
        for sites, bond, batch in itertools.product(*sizes):
            model, x = restt.ResTT(sites, 2, bond, 1), torch.rand(batch, sites, 2)

            calls: dict[str, Callable[[], object]] = {
                name: partial(_forward_and_backward, name, model, x) for name in ("eager", "tree", "fused_cpu")
            }
            times = _in_turn(calls, min(settings.rounds, ROUNDS))
            spent = {f"{name}_ms": round(1e3 * summarise(taken).median, 4) for name, taken in times.items()}
            rows.append(
                {"sites": sites, "bond_dim": bond, "batch": batch, "tree_work": batch * (bond + 1) ** 3, **spent}
            )
            console.print(rows[-1], markup=False)
    return {"title": "Where the tree pays: forward and backward of few samples", "rows": rows, "targets": []}


def _forward_and_backward(backend: str, model: restt.ResTT, x: Tensor) -> None:
    with restt.chain.backend(backend):
        model(x).sum().backward()


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _in_turn(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of this thread's processor time, round by round."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.thread_time()
            call()
            times[name].append(time.thread_time() - start)
    return times


def _ways(sites: int, batch: int, bond: int) -> dict[str, Callable[[], object]]:
    model = restt.ResTT(sites, 2, bond, IMAGE.outputs)
    features = torch.rand(batch, sites, 2)
    inner, y = features[:, 1:-1].contiguous(), torch.rand(batch, bond)
    assert model.chain is not None
    cores = model.chain.detach()

    def compiled() -> Tensor:
        with restt.chain.backend("fused_cpu"):
            output: Tensor = model(features)
        return output

    found: dict[str, Callable[[], object]] = {
        "bare GEMMs": _bare_products(sites, batch, bond),
        "torch, outer product then GEMM": lambda: _outer_then_product(y, inner, cores),
        "torch, wide GEMM then sum": lambda: _wide_product_then_sum(y, inner, cores),
        "compiled C": compiled,
    }
    sweep = _numba_sweep()
    if sweep is not None:
        tiles = batch // LANES
        state = y.view(tiles, LANES, bond).transpose(1, 2).contiguous().numpy()
        spread = inner.view(tiles, LANES, sites - 2, 2).permute(0, 2, 3, 1).contiguous().numpy()
        found["numba"] = lambda: sweep(state.copy(), spread, cores.numpy())
    return found


def _bare_products(sites: int, batch: int, bond: int) -> Callable[[], object]:
    """The forward sweep's GEMMs alone, the limit."""
    left, cores = torch.rand(batch, 2 * bond), torch.rand(sites - 2, 2 * bond, bond)
    out = torch.empty(batch, bond)

    def products() -> None:
        for core in cores:
            torch.mm(left, core, out=out)

    return products


def _outer_then_product(y: Tensor, x: Tensor, cores: Tensor) -> Tensor:
    """y + (x ⊗ y) W, the eager loop's shape of the work."""
    bond = y.shape[-1]
    for features, core in zip(x.unbind(1), cores, strict=True):
        product = (features.unsqueeze(-1) * y.unsqueeze(1)).flatten(1)
        y = torch.addmm(y, product, core.view(-1, bond))
    return y


def _wide_product_then_sum(y: Tensor, x: Tensor, cores: Tensor) -> Tensor:
    """y + Σ_i x_i (y W_i), with all W_i side by side in one product."""
    bond, width = y.shape[-1], x.shape[-1]
    wide = cores.transpose(1, 2).flatten(2)
    for features, core in zip(x.unbind(1), wide, strict=True):
        parts = (y @ core).view(-1, width, bond)
        y = torch.baddbmm(y.unsqueeze(1), features.unsqueeze(1), parts).squeeze(1)
    return y


def _numba_sweep() -> Callable[..., object] | None:
    """The compiled path's algorithm as numba writes it; None where numba is missing."""
    try:
        import numba
        import numpy as np
    except ImportError:
        return None

    @numba.njit(fastmath=True)
    def sweep(y: Any, x: Any, cores: Any) -> None:  # (tiles, R, LANES), (tiles, sites, I, LANES), (sites, I, R, R)
        tiles, bond = y.shape[:2]
        sites, width = cores.shape[:2]
        sums = np.zeros((4, LANES), y.dtype)
        scaled = np.zeros((width * bond, LANES), y.dtype)
        for tile in range(tiles):
            state = y[tile]
            for n in range(sites):
                for i in range(width):
                    for k in range(bond):
                        for b in range(LANES):
                            scaled[i * bond + k, b] = x[tile, n, i, b] * state[k, b]
                core = cores[n].reshape(width * bond, bond)
                for l in range(0, bond - 3, 4):
                    sums[:] = 0
                    for k in range(width * bond):
                        w0, w1, w2, w3 = core[k, l], core[k, l + 1], core[k, l + 2], core[k, l + 3]
                        for b in range(LANES):
                            z = scaled[k, b]
                            sums[0, b] += z * w0
                            sums[1, b] += z * w1
                            sums[2, b] += z * w2
                            sums[3, b] += z * w3
                    for r in range(4):
                        for b in range(LANES):
                            state[l + r, b] += sums[r, b]
                for l in range(bond // 4 * 4, bond):
                    for k in range(width * bond):
                        for b in range(LANES):
                            state[l, b] += scaled[k, b] * core[k, l]

    return sweep
