"""The limit: the matrix products a chain cannot do without, and nothing else."""

from __future__ import annotations

from typing import Any

import torch

from restt_bench.case import Case
from restt_bench.implementations.base import Implementation, Work, captured, graph_name, graph_refusal


class Products:
    """Per inner site one product forward, two backward, into outputs made beforehand.

        (B×IR)@(IR×R)    the state        (B×R)@(R×IR)    its gradient        (IR×B)@(B×R)    the core's gradient

    All sites share one set of operands, which therefore stay in cache: nothing that has to read N different cores can
    expect to be as quick. There are no outer products, no first and last site and no optimizer.
    """

    def __init__(self, case: Case, graph: bool = False) -> None:
        self.sites = max(0, case.sites - 2)
        runs, batch, bond, wide = case.runs or 1, case.batch, case.bond_dim, case.feature_dim * case.bond_dim
        generator = torch.Generator().manual_seed(0)
        sizes = {"product": (batch, wide), "core": (wide, bond), "grad": (batch, bond)}
        dtype = getattr(torch, case.dtype)
        made = {
            name: torch.randn(runs, *size, generator=generator, dtype=dtype).to(case.device)
            for name, size in sizes.items()
        }
        if runs == 1:
            made = {name: tensor[0] for name, tensor in made.items()}
        self.product, self.core, self.grad = made["product"], made["core"], made["grad"]
        self.multiply = torch.mm if runs == 1 else torch.bmm
        self.state, self.back, self.core_grad = map(torch.empty_like, (self.grad, self.product, self.core))
        if graph:
            self.step = captured(self.step)  # type: ignore[method-assign]
            self.infer = captured(self.infer)  # type: ignore[method-assign]

    def forward(self) -> None:
        """Outputs of every run."""
        for _ in range(self.sites):
            self.multiply(self.product, self.core, out=self.state)

    def backward(self) -> None:
        """Backward pass."""
        core, product = self.core.transpose(-1, -2), self.product.transpose(-1, -2)
        for _ in range(self.sites):
            self.multiply(self.grad, core, out=self.back)
            self.multiply(product, self.grad, out=self.core_grad)

    def step(self) -> None:
        """One training step."""
        self.forward()
        self.backward()

    def infer(self) -> None:
        """One inference."""
        self.forward()

    def is_finite(self) -> bool:
        """Whether the last loss was finite."""
        return True


class Limit(Implementation):
    """The products alone, :class:`Products`."""

    role = "limit"

    def __init__(self, *, graph: bool = False) -> None:
        self.graph = graph
        self.name, self.label = graph_name("limit", "limit: bare GEMMs", graph)

    def refusal(self, case: Case) -> str | None:
        """Why the case cannot be run, or None."""
        if case.precision == "bf16":
            return "torch has no bf16 products of float32 operands"
        return "no inner site, no product" if case.sites < 3 else graph_refusal(self, case)

    def flags(self, case: Case) -> dict[str, Any]:
        """Settings behind the times, for results files."""
        return {"cuda_graph": self.graph, "products": case.precision}

    def build(self, case: Case, seed: int) -> Work:
        """The untrained module."""
        return Products(case, self.graph)
