"""Many runs side by side: a module seen as S runs, whether or not it has that axis, and settings with one value each.

Everything in this package works on tensors (S, …). A module without runs is one run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from restt.init import undrawn
from restt.module import ResTT

PerRun = float | Sequence[float]
Kind = TypeVar("Kind", bound=nn.Module)


class RunsView:
    """A module seen as S runs.

    Inputs, outputs and all tensors have a leading axis S, of length 1 where ``module.runs`` is None or absent.
    ``weights`` are views (S, …) of all parameters and saved buffers: writing to them writes to the module.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.has_axis = getattr(module, "runs", None) is not None
        self.runs: int = getattr(module, "runs", None) or 1
        self.parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self.weights = {name: self._with_axis(value.detach()) for name, value in module.state_dict().items()}
        for name, value in self.weights.items():
            if value.dim() == 0 or len(value) != self.runs:
                raise ValueError(
                    f"module.{name} must have the {self.runs} runs as its first axis, got shape {tuple(value.shape)}"
                )
        if not self.parameters:
            raise ValueError("module has no parameter to train: all are frozen or there are none")
        parameter = next(iter(self.parameters.values()))
        self.device, self.dtype = parameter.device, parameter.dtype

    def __call__(
        self,
        x: Tensor,  # (S or 1, B, …)
        weights: dict[str, Tensor] | None = None,  # (S, …) each, in place of the module's own
    ) -> Tensor:  # (S, B, O)
        """Return the outputs, under other weights where they are given."""
        data = x if self.has_axis and len(x) == self.runs else x[0]
        if weights is None:
            output = self.module(data)
        else:
            own = {name: value if self.has_axis else value[0] for name, value in weights.items()}
            output = torch.func.functional_call(self.module, own, (data,))
        return self._with_axis(output)

    def gradients(self) -> dict[str, Tensor]:  # (S, …) each
        """Gradients of the parameters that have one."""
        return {name: self._with_axis(value.grad) for name, value in self.parameters.items() if value.grad is not None}

    def clear_gradients(self) -> None:
        """Forget all gradients."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def _with_axis(self, value: Tensor) -> Tensor:
        return value if self.has_axis else value.unsqueeze(0)


def working_copy(module: Kind, keep: Sequence[int]) -> Kind:
    """Copy a module with only the runs ``keep``, in that order; changes to the copy leave the module alone."""
    clone = copy.deepcopy(module)
    total = getattr(module, "runs", None)
    if total is None or list(keep) == list(range(total)):
        return clone
    for part in clone.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                rows = parameter.detach()[list(keep)].clone()
                part._parameters[name] = nn.Parameter(rows, requires_grad=parameter.requires_grad)
        for name, buffer in part._buffers.items():
            if buffer is not None and name not in part._non_persistent_buffers_set:
                part._buffers[name] = buffer[list(keep)].clone()
        if getattr(part, "runs", None) is not None:
            part.runs = len(keep)  # type: ignore[assignment]
    return clone


@torch.no_grad()
def joined(parts: Sequence[ResTT]) -> ResTT:
    """Join residual modules of one shape, without runs or of one run each, as the runs of one module."""
    like, bias = parts[0], parts[0].bias is not None
    shape = like.sites, like.feature_dims, like.bond_dim, like.outputs
    with undrawn():
        made = ResTT(*shape, bias=bias, runs=len(parts), dtype=like.dtype, device=like.device)
    for name, parameter in made.named_parameters():
        parameter.copy_(torch.stack([part.get_parameter(name).view(parameter.shape[1:]) for part in parts]))
    return made


def per_run(name: str, value: Any, runs: int) -> list[Any]:
    """``value`` for each of the runs: repeated where it is one, checked for length where it is a sequence.

    >>> per_run("lr", 0.1, 2), per_run("lr", (0.1, 0.2), 2)
    ([0.1, 0.1], [0.1, 0.2])
    """
    values = as_list(value)
    if values is None:
        return [value] * runs
    if len(values) != runs:
        raise ValueError(f"{name} must be one value or one for each of the {runs} run(s), got {len(values)}")
    return values


def check_each(name: str, value: Any, check: Callable[[Any], Any]) -> None:
    """``check`` the value, or every value of a sequence."""
    values = as_list(value)
    if values is not None and not values:
        raise ValueError(f"{name} must be one value or one for each run, got an empty sequence")
    for item in [value] if values is None else values:
        check(item)


def as_list(value: Any) -> list[Any] | None:
    """The values of a sequence, array or tensor as a list; None for a single value."""
    if len(getattr(value, "shape", ())) > 0:
        return list(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    return None
