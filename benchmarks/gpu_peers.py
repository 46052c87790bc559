"""What the fused chain is timed against: the textbook step with per-sample matrices, and TensorKrowch."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Textbook(nn.Module):
    """The residual chain as the equations read: A(n) = Σ_i x(n,i) W(n,1)_i per sample, then y + y A(n) + x W(n,2)."""

    def __init__(self, sites: int, width: int, bond: int, outputs: int) -> None:
        super().__init__()
        scale = 0.1 / bond**0.5
        self.first = nn.Parameter(torch.randn(width, bond) * scale)
        self.cores = nn.ParameterList([nn.Parameter(torch.randn(width, bond, bond) * scale) for _ in range(sites - 2)])
        self.entries = nn.ParameterList([nn.Parameter(torch.randn(width, bond) * scale) for _ in range(sites - 2)])
        self.last = nn.Parameter(torch.randn(width, bond, outputs) * scale)
        self.last_entry = nn.Parameter(torch.randn(width, outputs) * scale)
        self.last_skip = nn.Parameter(torch.randn(bond, outputs) * scale)

    def forward(
        self,
        x: Tensor,  # (B, N, I)
    ) -> Tensor:  # (B, O)
        y = x[:, 0] @ self.first
        for n, (core, entry) in enumerate(zip(self.cores, self.entries, strict=True), start=1):
            transfer = torch.einsum("bi,ikl->bkl", x[:, n], core)
            y = y + torch.bmm(y[:, None], transfer)[:, 0] + x[:, n] @ entry
        transfer = torch.einsum("bi,iko->bko", x[:, -1], self.last)
        return torch.bmm(y[:, None], transfer)[:, 0] + x[:, -1] @ self.last_entry + y @ self.last_skip


def tensorkrowch_mps(sites: int, width: int, bond: int, outputs: int, device: str) -> nn.Module:
    """TensorKrowch's plain matrix product state with one output node, traced as its documentation advises."""
    import tensorkrowch

    model: nn.Module = tensorkrowch.models.MPSLayer(
        n_features=sites + 1, in_dim=width, out_dim=outputs, bond_dim=bond, init_method="randn_eye", std=1e-3
    )
    model = model.to(device)
    model.auto_stack = True
    model.auto_unbind = False
    model.trace(torch.zeros(1, sites, width, device=device))
    return model
