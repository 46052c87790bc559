"""Random trains with diagonal cores."""

from __future__ import annotations

import torch
from torch import Tensor

from restt import DiagonalTT


def random_diagonal(
    widths: list[int],
    rows: int = 7,
    groups: int = 2,
    outputs: int = 2,
    runs: int | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> DiagonalTT:
    """Factors, shares and main effects in general position; some factors are 0."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    counts = [2 + n % 3 for n in range(len(widths))]
    tables = [normal(groups, count, width) for count, width in zip(counts, widths, strict=True)]
    tables[-1][0, 0] = 0
    code = torch.stack([torch.randint(count, (rows,), generator=generator) for count in counts], 1)
    share = torch.rand(rows, len(widths), generator=generator).to(dtype)
    share[code == torch.tensor(counts) - 1] = 0
    effects = [normal(outputs, width) for width in widths]
    return DiagonalTT(tables, code, share, normal(groups, rows, outputs), effects, normal(outputs), runs)


def random_rows(module: DiagonalTT, rows: int = 5, seed: int = 1) -> Tensor:  # (B, N, I)
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, module.sites, module.feature_dim, generator=generator, dtype=torch.float64).to(
        module.dtype
    )
