"""The limit: the matrix products a chain cannot do without, and nothing else."""

from __future__ import annotations

from typing import Any

import torch

from restt_bench.case import Case
from restt_bench.implementation import Implementation, Work, captured


class Products:
    """Per inner site one product forward and two backward, into outputs allocated beforehand.

        (B×IR)@(IR×R)    the state        (B×R)@(R×IR)    its gradient        (IR×B)@(B×R)    the core's gradient

    All sites share one set of operands, which therefore stay in cache: a chain that reads N different cores is hardly
    as quick. There are no outer products, no first and last site and no optimizer.
    """

    def __init__(self, case: Case, graph: bool = False) -> None:
        self.sites = max(0, case.sites - 2)
        runs, batch, bond, wide = case.runs or 1, case.batch, case.bond_dim, case.feature_dim * case.bond_dim
        generator = torch.Generator().manual_seed(0)
        operands = (
            torch.randn(runs, *size, generator=generator, dtype=getattr(torch, case.dtype)).to(case.device)
            for size in ((batch, wide), (wide, bond), (batch, bond))
        )
        self.product, self.core, self.grad = (operand[0] if runs == 1 else operand for operand in operands)
        self.multiply = torch.mm if runs == 1 else torch.bmm
        self.state, self.back, self.core_grad = map(torch.empty_like, (self.grad, self.product, self.core))
        if graph:
            self.step, self.infer = captured(self.step), captured(self.infer)  # type: ignore[method-assign]

    def step(self) -> None:
        """Compute the products of one training step."""
        self.infer()
        core, product = self.core.transpose(-1, -2), self.product.transpose(-1, -2)
        for _ in range(self.sites):
            self.multiply(self.grad, core, out=self.back)
            self.multiply(product, self.grad, out=self.core_grad)

    def infer(self) -> None:
        """Compute the products of one inference."""
        for _ in range(self.sites):
            self.multiply(self.product, self.core, out=self.state)

    def is_finite(self) -> bool:
        """There is no loss that could diverge."""
        return True


class Limit(Implementation):
    """The products alone, :class:`Products`."""

    role = "limit"

    def __init__(self, *, graph: bool = False) -> None:
        self.graph = graph
        self.named("limit", "limit: bare GEMMs")

    def refusal(self, case: Case) -> str | None:
        """Why the case cannot be run, or None."""
        if case.precision == "bf16":
            return "torch has no bf16 products of float32 operands"
        return "no inner site, no product" if case.sites < 3 else super().refusal(case)

    def flags(self, case: Case) -> dict[str, Any]:
        """Settings behind the times, for results files."""
        return {"cuda_graph": self.graph, "products": case.precision}

    def build(self, case: Case, seed: int) -> Work:
        """The operands and, with ``graph``, the captured products."""
        return Products(case, self.graph)
