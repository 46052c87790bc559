"""Losses of long chains under uniform and under stable rates: MNIST of 784 sites, drawn rows of 10,000.

python tools/train_long_chains.py [--steps 300]
"""

from __future__ import annotations

import math

import torch
from common import parser, write_results
from torch import Tensor

import restt

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
    optimizer, generator, values = torch.optim.Adam(groups, lr=lr), torch.Generator().manual_seed(1), []
    for _ in range(steps):
        rows = torch.randint(len(x), (BATCH,), generator=generator)
        angle = math.pi / 2 * x[rows]
        loss = torch.nn.functional.cross_entropy(module(torch.stack([angle.cos(), angle.sin()], -1)), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        values.append(min(value, LARGEST) if math.isfinite(value) else LARGEST)
    return values


def main() -> None:
    reader = parser(__doc__)
    reader.add_argument("--steps", type=int, default=300)
    steps = reader.parse_args().steps
    cells = []
    for name, (x, y), length in (("mnist", images(), steps), ("drawn", drawn(10_000), steps // 10)):
        for lr in (1e-3, 1e-2):
            for rates in ("uniform", "stable"):
                values = losses(x, y, lr, rates, length)
                end = sum(values[-10:]) / len(values[-10:])
                cell = {"rows": name, "sites": x.shape[1], "lr": lr, "rates": rates, "steps": length}
                cells.append(cell | {"first": values[0], "largest": max(values), "last_ten": end})
                print(cells[-1], flush=True)
    write_results("stability/long-chains.json", {"cells": cells}, f"train_long_chains.py --steps {steps}")


if __name__ == "__main__":
    main()
