"""Whether a training fits: refused before any work is done, with the memory it would need."""

from __future__ import annotations

import torch

from restt._common.devices import available_memory, gibibytes

# Copies of the weights that a training holds: the module, its working copy, gradients, Adam's two moments, and two
# snapshots of weights and moments for the guard.
WEIGHT_COPIES = 11
# The chain is walked site by site; beyond this many sites one step takes minutes, whatever the memory.
MOST_SITES = 100_000


def check_fits(
    sites: int,
    width: int,
    bond_dim: int,
    outputs: int,
    runs: int,
    rows: int,
    batch: int,
    itemsize: int,
    device: torch.device,
) -> None:
    """ValueError where the weights and site vectors of such a training do not fit, or the chain is too long."""
    weights = sites * width * (bond_dim * bond_dim + bond_dim) + width * bond_dim * outputs
    vectors = rows * sites * width
    states = batch * runs * sites * bond_dim * 3
    need = (WEIGHT_COPIES * runs * weights + vectors + states) * itemsize
    free = available_memory(device)
    size = f"{sites} columns as sites of width {width} with bond_dim={bond_dim} and runs={runs} on {rows} rows"
    if need > free:
        raise ValueError(
            f"X is too large: {size} would need {gibibytes(need)}, {gibibytes(free)} are available on {device}; "
            "use fewer columns, a smaller bond_dim or fewer runs"
        )
    if sites > MOST_SITES:
        raise ValueError(
            f"X has too many columns: {size} would need {gibibytes(need)}, and a chain of more than {MOST_SITES} sites "
            "takes minutes for every step; select or group columns first"
        )
