"""How the fused CPU path came to be C: the same forward sweep by several means, and where the tree pays.

    python benchmarks/cpu_means.py means        # writes results/bench/cpu_means.json; needs numba for one column
    python benchmarks/cpu_means.py crossover    # eager, tree and fused_cpu for few samples

All take turns; times are of one thread's own processor time, so that other work on the machine counts little.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import restt
from restt._common.files import write_json_atomic
from restt._common.provenance import provenance

SITES, WIDTH, BATCH, OUTPUTS = 196, 2, 512, 10
RESULT = Path(__file__).parents[1] / "results" / "bench" / "cpu_means.json"
COMMAND = "python benchmarks/cpu_means.py means"
LANES = 16  # samples per tile of the numba kernel, as in the compiled one


def bare_products(bond: int) -> Callable[[], object]:
    """The forward sweep's GEMMs alone, the limit."""
    left, cores = torch.rand(BATCH, WIDTH * bond), torch.rand(SITES - 2, WIDTH * bond, bond)
    out = torch.empty(BATCH, bond)

    def run() -> None:
        for core in cores:
            torch.mm(left, core, out=out)

    return run


def outer_then_product(y: Tensor, x: Tensor, cores: Tensor) -> Tensor:
    """y + (x ⊗ y) W, the eager loop's shape of the work."""
    bond = y.shape[-1]
    for features, core in zip(x.unbind(1), cores, strict=True):
        product = (features.unsqueeze(-1) * y.unsqueeze(1)).flatten(1)
        y = torch.addmm(y, product, core.view(-1, bond))
    return y


def wide_product_then_sum(y: Tensor, x: Tensor, cores: Tensor) -> Tensor:
    """y + Σ_i x_i (y W_i), with all W_i side by side in one product."""
    bond, width = y.shape[-1], x.shape[-1]
    wide = cores.transpose(1, 2).flatten(2)
    for features, core in zip(x.unbind(1), wide, strict=True):
        parts = (y @ core).view(-1, width, bond)
        y = torch.baddbmm(y.unsqueeze(1), features.unsqueeze(1), parts).squeeze(1)
    return y


def numba_sweep() -> Callable[..., object] | None:
    """The compiled path's algorithm as numba writes it; None where numba is missing."""
    try:
        import numba
        import numpy as np
    except ImportError:
        return None

    @numba.njit(fastmath=True)
    def sweep(y, x, cores):  # (tiles, R, LANES), (tiles, sites, I, LANES), (sites, I, R, R)
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


def contenders(bond: int) -> dict[str, Callable[[], object]]:
    model = restt.ResTT(SITES, WIDTH, bond, OUTPUTS)
    features = torch.rand(BATCH, SITES, WIDTH)
    inner, y = features[:, 1:-1].contiguous(), torch.rand(BATCH, bond)
    cores = model.chain.detach()

    def compiled() -> Tensor:
        with restt.chain.backend("fused_cpu"):
            return model(features)

    found: dict[str, Callable[[], object]] = {
        "bare GEMMs": bare_products(bond),
        "torch, outer product then GEMM": lambda: outer_then_product(y, inner, cores),
        "torch, wide GEMM then sum": lambda: wide_product_then_sum(y, inner, cores),
        "compiled C": compiled,
    }
    sweep = numba_sweep()
    if sweep is not None:
        tiles = BATCH // LANES
        state = y.view(tiles, LANES, bond).transpose(1, 2).contiguous().numpy()
        spread = inner.view(tiles, LANES, SITES - 2, WIDTH).permute(0, 2, 3, 1).contiguous().numpy()
        found["numba"] = lambda: sweep(state.copy(), spread, cores.numpy())
    return found


def race(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of this thread's processor time, round by round."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.thread_time()
            call()
            times[name].append(1e3 * (time.thread_time() - start))
    return times


@torch.no_grad()
def means(rounds: int) -> None:
    origin = provenance(command=COMMAND)
    table: dict[str, dict[str, dict[str, float]]] = {}
    for bond in (20, 50, 100):
        times = race(contenders(bond), rounds)
        limit = {"median": statistics.median(times["bare GEMMs"]), "fastest": min(times["bare GEMMs"])}
        table[f"r={bond}"] = {}
        for name, taken in times.items():
            row = {"median": statistics.median(taken), "fastest": min(taken)}
            ratios = {f"{key} / GEMM": round(row[key] / limit[key], 3) for key in row}
            table[f"r={bond}"][name] = {**{f"{key} ms": round(value, 3) for key, value in row.items()}, **ratios}
            print(f"r={bond:<4} {name:<32} {row['median']:8.2f} ms   {ratios['median / GEMM']:5.2f} × GEMM")
    sizes = {"sites": SITES, "feature_dim": WIDTH, "batch": BATCH, "outputs": OUTPUTS, "threads": 1, "rounds": rounds}
    what = "forward sweep, one thread, processor time"
    write_json_atomic(RESULT, {"what": what, "sizes": sizes, "table": table, "provenance": origin})


def crossover(rounds: int) -> None:
    print("forward + backward, ms: eager / tree / fused_cpu; work is B·(R+1)³, what the tree does per site")
    for sites, bond, batch in itertools.product((16, 64, 256, 1000), (2, 4, 8, 16), (1, 4, 16, 64)):
        model, x = restt.ResTT(sites, 2, bond, 1), torch.rand(batch, sites, 2)

        def step(name: str, model: restt.ResTT = model, x: Tensor = x) -> None:
            with restt.chain.backend(name):
                model(x).sum().backward()

        names = ("eager", "tree", "fused_cpu")
        times = race({name: lambda name=name, step=step: step(name) for name in names}, rounds)
        shown = " / ".join(f"{statistics.median(times[name]):8.2f}" for name in names)
        print(f"N={sites:<5} r={bond:<3} B={batch:<3} work {batch * (bond + 1) ** 3:<7} {shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["means", "crossover"])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    {"means": means, "crossover": crossover}[options.what](options.rounds)


if __name__ == "__main__":
    main()
