"""How much memory a training needs, and how many rows of a batch fit: upper estimates, written once.

A batch that does not fit is split into micro-batches, with the same result.
"""

from __future__ import annotations

from torch import nn

from restt.train.config import TrainConfig


def weight_copies(config: TrainConfig, saved: bool = False) -> int:
    """How many tensors of the weights' size a training holds; ``saved`` where it has checkpoints.

    >>> weight_copies(TrainConfig()), weight_copies(TrainConfig(max_failures=None)), weight_copies(TrainConfig(), True)
    (11, 5, 15)
    """
    working = 3 + (config.ema is not None)  # a copy of the module, Adam's two moments, the moving average
    snapshots = 0 if config.max_failures is None else 2
    best = saved or config.keep == "best"
    start = config.penalty is not None and config.penalty.towards == "start"
    return 2 + working * (1 + snapshots + saved) + best + start  # the module itself and its gradients come first


def row_bytes(sites: int, width: int, bond_dim: int, runs: int, itemsize: int) -> int:
    """Bytes that one row of each run needs in a training step.

    The forward sweep keeps every state, the backward sweep as many gradients, and the weight gradient reads a scaled
    copy of the states; beside them the features, and x ⊗ y of one site.
    """
    return runs * (3 * sites * bond_dim + 2 * sites * width + 2 * width * bond_dim) * itemsize


def training_bytes(
    config: TrainConfig,
    *,
    sites: int,
    width: int,
    bond_dim: int,
    outputs: int,
    runs: int,
    rows: int,
    itemsize: int,
    saved: bool = False,
) -> int:
    """Bytes that a training of a residual module on this many rows needs: weights, site vectors and one batch.

    >>> training_bytes(TrainConfig(), sites=10, width=2, bond_dim=4, outputs=1, runs=1, rows=1000, itemsize=4)
    458400
    """
    weights = sites * width * (bond_dim * bond_dim + bond_dim) + width * bond_dim * outputs
    batch = min(rows, config.micro_batch or rows, config.batch_size or rows)
    held = (weight_copies(config, saved) * runs * weights + rows * sites * width) * itemsize
    return held + batch * row_bytes(sites, width, bond_dim, runs, itemsize)


def bytes_per_row(module: nn.Module) -> int:
    """:func:`row_bytes` of a module."""
    try:
        sites, width, bond = int(module.sites), int(module.feature_dim), int(module.bond_dim)  # type: ignore[arg-type]
    except AttributeError:
        raise ValueError(
            f"memory_budget needs a restt.ResTT, whose sizes are known; for {type(module).__name__} use micro_batch"
        ) from None
    return row_bytes(sites, width, bond, getattr(module, "runs", None) or 1, next(module.parameters()).element_size())


def rows_in_budget(module: nn.Module, budget: int) -> int:
    """Rows of each run that a step may hold within ``budget`` bytes.

    >>> import restt
    >>> rows_in_budget(restt.ResTT(sites=10, feature_dim=2, bond_dim=4, outputs=1), 100_000)
    142
    """
    rows = budget // bytes_per_row(module)
    if rows < 1:
        raise ValueError(
            f"memory_budget of {budget} bytes is below the {bytes_per_row(module)} bytes that one row of each run needs"
        )
    return rows
