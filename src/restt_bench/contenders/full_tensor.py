"""The general multilinear model that a tensor train replaces (paper, Eq. 4)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from restt_bench.case import Case
from restt_bench.contenders.base import Contender
from restt_bench.gradients import cotangent, output_and_gradients
from restt_bench.work import TrainingStep, Work

# Weights beyond which the model is only a way to run out of memory.
MAX_WEIGHTS = 2**26
# Sites of the comparison, which contracts site after site with B·I^N·O numbers in memory.
CHECKED_SITES = 8


class FullTensorModel(nn.Module):
    """Y = C[W, X(1), …, X(N)] with one weight tensor of I^N·O entries, paper Eq. 4.

    >>> model = FullTensorModel(sites=3, feature_dim=2, outputs=4)
    >>> model(torch.rand(5, 3, 2)).shape
    torch.Size([5, 4])
    """

    def __init__(self, sites: int, feature_dim: int, outputs: int, **options: object) -> None:
        super().__init__()
        entries = feature_dim**sites
        self.weight = nn.Parameter(torch.randn(entries, outputs, **options) / entries**0.5)  # type: ignore[call-overload]

    def forward(
        self,
        x: Tensor,  # (B, N, I)
    ) -> Tensor:  # (B, O)
        product = x[:, 0]  # (B, I^n), all products of one feature per site
        for n in range(1, x.shape[1]):
            product = (product.unsqueeze(2) * x[:, n].unsqueeze(1)).flatten(1)
        return product @ self.weight


class FullTensor(Contender):
    """:class:`FullTensorModel` in the race, to show the exponential."""

    role = "peer"
    name = "full-tensor"
    label = "full tensor (Eq. 4)"

    def refusal(self, case: Case) -> str | None:
        if case.runs is not None:
            return "has no runs axis"
        weights = case.feature_dim**case.sites * case.outputs
        return f"{weights:.1e} weights" if weights > MAX_WEIGHTS else None

    def extra_bytes(self, case: Case) -> int:
        return case.feature_dim**case.sites * (5 * case.outputs + 4 * case.batch) * case.itemsize

    def _model(self, case: Case, seed: int) -> FullTensorModel:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = FullTensorModel(case.sites, case.feature_dim, case.outputs, dtype=getattr(torch, case.dtype))
        return model.to(case.device)

    def build(self, case: Case, seed: int) -> Work:
        model = self._model(case, seed)
        return TrainingStep(model, model.parameters(), case, seed)

    def found_and_expected(self, case: Case, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        case = replace(case, sites=min(case.sites, CHECKED_SITES))
        model = self._model(case, seed)
        x, upstream = case.data(seed)[0], cotangent(case, seed)
        found = output_and_gradients(model, dict(model.named_parameters()), x, upstream)
        weight = model.weight.detach().to("cpu", torch.float64).requires_grad_()
        shape = (*[case.feature_dim] * case.sites, case.outputs)

        def contracted(x: Tensor) -> Tensor:
            result = weight.view(shape).unsqueeze(0).expand(len(x), *shape)
            for n in range(case.sites):
                result = torch.einsum("bi,bi...->b...", x[:, n], result)
            return result

        expected = output_and_gradients(contracted, {"weight": weight}, x.to("cpu", torch.float64), upstream)
        return {name: (found[name], expected[name]) for name in expected}
