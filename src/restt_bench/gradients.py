"""A model's output and all its gradients, for comparison with the reference."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from restt import chain
from restt.module import ResTT
from restt_bench.case import Case


def cotangent(case: Case, seed: int) -> Tensor:  # (B, O) or (S, B, O), float64
    """The gradient that arrives from above, the same for all who are compared."""
    leading = () if case.runs is None else (case.runs,)
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randn(*leading, case.batch, case.outputs, generator=generator, dtype=torch.float64)


def output_and_gradients(
    model: Callable[[Tensor], Tensor],
    parameters: Mapping[str, Tensor],
    x: Tensor,  # (B, N, I)
    upstream: Tensor,  # (B, O) or (S, B, O)
    scope: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, Tensor]:
    """The output, the gradient of the features and that of every parameter."""
    x = x.detach().clone().requires_grad_()
    for parameter in parameters.values():
        parameter.grad = None
    with scope():
        output = model(x)
    output.backward(upstream.to(output))
    found = {"output": output.detach(), "x": x, **parameters}
    return {
        name: tensor
        if name == "output"
        else (torch.zeros_like(tensor) if tensor.grad is None else tensor.grad.detach().clone())
        for name, tensor in found.items()
    }


def reference_gradients(module: ResTT, case: Case, seed: int) -> dict[str, Tensor]:
    """The same by the reference in float64 on the CPU, for the weights of ``module``."""
    exact = copy.deepcopy(module).to("cpu", torch.float64)
    x = case.data(seed)[0].to("cpu", torch.float64)
    upstream = cotangent(case, seed)
    return output_and_gradients(exact, dict(exact.named_parameters()), x, upstream, lambda: chain.backend("reference"))
