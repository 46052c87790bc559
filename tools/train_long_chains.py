"""Losses of long chains under uniform and under stable rates: MNIST of 784 sites, drawn rows of 10,000.

PYTHONPATH=src python tools/train_long_chains.py [--steps 300]
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import torch
from torch import Tensor

import restt
from restt._common.files import write_json_atomic
from restt._common.provenance import provenance

RESULT = Path(__file__).parents[1] / "results" / "stability" / "long-chains.json"
BOND, BATCH, LARGEST = 20, 128, 1e30


def images() -> tuple[Tensor, Tensor]:
    rows = restt.data.load("mnist", preprocess="full")
    return rows.x_train[:6000].flatten(1) / rows.x_train.max(), rows.y_train[:6000]


def drawn(sites: int) -> tuple[Tensor, Tensor]:
    """Two classes: which end of the row is brighter."""
    x = torch.rand(1000, sites, generator=torch.Generator().manual_seed(0))
    return x, (x[:, :50].mean(1) > x[:, -50:].mean(1)).long()


def losses(x: Tensor, y: Tensor, lr: float, rates: str, steps: int) -> list[float]:
    """Loss of each batch before its step of Adam."""
    module = restt.ResTT(x.shape[1], 2, BOND, int(y.max()) + 1, bias=True)
    module.reset_parameters(seed=0)
    groups = restt.meanfield.stable_rates(module, lr) if rates == "stable" else module.parameters()
    optimizer, generator, found = torch.optim.Adam(groups, lr=lr), torch.Generator().manual_seed(1), []
    for _ in range(steps):
        rows = torch.randint(len(x), (BATCH,), generator=generator)
        angle = math.pi / 2 * x[rows]
        loss = torch.nn.functional.cross_entropy(module(torch.stack([angle.cos(), angle.sin()], -1)), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        found.append(min(value, LARGEST) if math.isfinite(value) else LARGEST)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    cells = []
    for name, (x, y), length in (("mnist", images(), steps), ("drawn", drawn(10_000), steps // 10)):
        for lr in (1e-3, 1e-2):
            for rates in ("uniform", "stable"):
                found = losses(x, y, lr, rates, length)
                end = sum(found[-10:]) / len(found[-10:])
                cell = {"rows": name, "sites": x.shape[1], "lr": lr, "rates": rates, "steps": length}
                cells.append(cell | {"first": found[0], "largest": max(found), "last_ten": end})
                print(cells[-1], flush=True)
    write_json_atomic(RESULT, {"cells": cells, "provenance": provenance(seed=0, command="tools/train_long_chains.py")})
    return 0


if __name__ == "__main__":
    sys.exit(main())
