"""Tensors that pretend to be on another device, so that what a GPU would refuse is refused here too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

# What moves values between devices.
MOVES = {"to", "cpu", "copy_", "type_as"}
# Row numbers may be on the CPU.
INDEXING = {"__getitem__", "__setitem__"}
# A GPU's values are not an array's.
REFUSED = {"numpy", "__array__"}


class Elsewhere(Tensor):
    """A tensor that meets none on the CPU, but for single numbers and indices."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in REFUSED:
            raise TypeError(f"{name} of a tensor that is elsewhere: move it to the CPU first")
        found = super().__torch_function__(func, types, args, kwargs or {})
        if name == "cpu" or (name == "to" and _asks_for_cpu(args[1:])):
            return found.as_subclass(Tensor) if isinstance(found, Elsewhere) else found
        if name not in MOVES | INDEXING:
            plain = [each for each in _tensors(args) if not isinstance(each, Elsewhere) and each.dim() > 0]
            if plain:
                raise RuntimeError(f"{name} of tensors here and elsewhere, the former of shape {tuple(plain[0].shape)}")
        return found


def elsewhere(values: Any) -> Tensor:
    """The values, elsewhere."""
    return torch.as_tensor(values).as_subclass(Elsewhere)


def _asks_for_cpu(given: Iterable[Any]) -> bool:
    return any(torch.device(each).type == "cpu" for each in given if isinstance(each, (str, torch.device)))


def _tensors(given: Any) -> Iterable[Tensor]:
    for each in given:
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, (tuple, list)):
            yield from _tensors(each)
