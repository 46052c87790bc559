"""The general multilinear model that a tensor train replaces (paper, Eq. 4)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from restt_bench.case import Case
from restt_bench.implementations.base import Implementation, TrainingStep, Work
from restt_bench.parity import cotangent, output_and_gradients

if TYPE_CHECKING:
    from restt_baselines.tensor import full_tensor

# Weights beyond which the model is only a way to run out of memory.
MAX_WEIGHTS = 2**26
# Sites of the comparison, which contracts site after site with B·I^N·O numbers in memory.
CHECKED_SITES = 8


class FullTensor(Implementation):
    """The module of the baseline ``full-tensor``, to show the exponential."""

    role = "baseline"
    name = "full-tensor"
    label = "full tensor (Eq. 4)"

    def refusal(self, case: Case) -> str | None:
        if case.runs is not None:
            return "has no runs axis"
        weights = case.feature_dim**case.sites * case.outputs
        return f"{weights:.1e} weights" if weights > MAX_WEIGHTS else None

    def extra_bytes(self, case: Case) -> int:
        return case.feature_dim**case.sites * (5 * case.outputs + 4 * case.batch) * case.itemsize

    def _model(self, case: Case, seed: int) -> full_tensor.FullTensor:
        from restt_baselines.tensor import (
            full_tensor,
        )  # brings scikit-learn, which a process for one step has no use for

        model = full_tensor.FullTensor(case.sites, case.feature_dim, case.outputs, 1, seed, MAX_WEIGHTS)
        return model.to(case.device, getattr(torch, case.dtype))

    def build(self, case: Case, seed: int) -> Work:
        model = self._model(case, seed)
        return TrainingStep(lambda x: model(x)[0], model.parameters(), case, seed)

    def found_and_expected(self, case: Case, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        case = replace(case, sites=min(case.sites, CHECKED_SITES))
        model = self._model(case, seed)
        x, upstream = case.data(seed)[0], cotangent(case, seed)
        found = output_and_gradients(lambda x: model(x)[0], dict(model.named_parameters()), x, upstream)
        weight = model.weight.detach().to("cpu", torch.float64).requires_grad_()
        shape = (*[case.feature_dim] * case.sites, case.outputs)

        def contracted(x: Tensor) -> Tensor:
            result = weight.view(shape).unsqueeze(0).expand(len(x), *shape)
            for n in range(case.sites):
                result = torch.einsum("bi,bi...->b...", x[:, n], result)
            return result

        expected = output_and_gradients(contracted, {"weight": weight}, x.to("cpu", torch.float64), upstream)
        return {name: (found[name], expected[name]) for name in expected}
