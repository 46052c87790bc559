"""How many rows fit: the batch is split into micro-batches when memory is short, with the same result."""

from __future__ import annotations

from torch import nn


def bytes_per_row(module: nn.Module) -> int:
    """Bytes one row of each run needs in a training step, an upper estimate.

    The forward sweep keeps every state, the backward sweep as many gradients, and the weight gradient reads a scaled
    copy of the states; beside them the features, and x ⊗ y of one site.
    """
    try:
        sites, width, bond = int(module.sites), int(module.feature_dim), int(module.bond_dim)  # type: ignore[arg-type]
    except AttributeError:
        raise ValueError(
            f"memory_budget needs a restt.ResTT, whose sizes are known; for {type(module).__name__} use micro_batch"
        ) from None
    runs = getattr(module, "runs", None) or 1
    numbers = 3 * sites * bond + 2 * sites * width + 2 * width * bond
    return runs * numbers * next(module.parameters()).element_size()


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
