"""The "auto" settings: device, precision, batches and epochs from the size of the problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from restt._common.devices import read_device
from restt.train import Penalty

# The same below which float64 costs nothing that matters on a CPU.
SMALL_FOR_FLOAT64 = 2e9
# Tables of up to this many rows train in one batch; larger ones in batches of BATCH rows.
FULL_BATCH = 2048
BATCH = 512
# Steps that "auto" aims at, and the fewest epochs it takes for large tables.
STEPS = 150
FEWEST_EPOCHS = 20

# Precisions whose parameters are float32; what differs is how the fused GPU kernels multiply.
PRECISIONS = {"float64": torch.float64, "float32": torch.float32, "tf32": torch.float32, "bf16": torch.float32}

# Interactions pay more than main effects: the chain's cores, which carry them, weigh this much more.
CHAIN_GRADE = 10.0


@dataclass(frozen=True)
class Plan:
    """How one training is carried out."""

    device: torch.device
    precision: str
    batch_size: int | None
    epochs: int
    step_work: float  # multiplications of one step

    @property
    def dtype(self) -> torch.dtype:
        return PRECISIONS[self.precision]


def make_plan(
    rows: int, width: int, bond_dim: int, runs: int, *, device: Any, precision: str, batch_size: Any, epochs: Any
) -> Plan:
    """Settle what is ``"auto"``; ``width`` is Σ_n I_n."""
    work = float(rows) * width * bond_dim**2 * runs
    chosen = read_device(device, work)
    if precision == "auto":
        precision = "float64" if chosen.type == "cpu" and work <= SMALL_FOR_FLOAT64 else "float32"
    batch = (rows if rows <= FULL_BATCH else BATCH) if batch_size == "auto" else batch_size
    steps = -(-rows // batch)
    count = max(FEWEST_EPOCHS, -(-STEPS // steps)) if epochs == "auto" else epochs
    step_work = work * min(1.0, batch / rows)
    return Plan(chosen, precision, None if batch >= rows else int(batch), int(count), step_work)


def read_penalty(penalty: Any, auto: float) -> Penalty | None:
    """A number p weighs linear entries and head by p and the chain's cores by 10 p; a dict or Penalty says each.

    ``auto`` is the number for ``"auto"``.

    >>> read_penalty("auto", 1e-3)
    Penalty(chain=0.01, linear=0.001, head=0.001)
    """
    if penalty is None or isinstance(penalty, Penalty):
        return penalty
    if isinstance(penalty, Mapping):
        unknown = sorted(set(penalty) - {"chain", "linear", "head"})
        if unknown:
            raise ValueError(f"penalty may hold chain, linear and head, got {unknown}")
        return Penalty(**penalty)
    weight = auto if penalty == "auto" else float(penalty)
    return Penalty(chain=CHAIN_GRADE * weight, linear=weight, head=weight)
