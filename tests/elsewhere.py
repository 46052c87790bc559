"""A GPU that is none: tensors on "cuda" that are on the CPU, and meet none that say so.

What would fail on a GPU for being in the wrong place fails here too, on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

GPU = torch.device("cuda")
CPU = torch.device("cpu")
# What moves values between devices.
MOVES = {"to", "cpu", "copy_", "type_as"}
# Row numbers may be on the CPU.
INDEXING = {"__getitem__", "__setitem__"}
MEETING_BOTH = MOVES | INDEXING
# A GPU's values are not an array's.
REFUSED = {"numpy", "__array__"}


class Elsewhere(Tensor):
    """A tensor on the pretended GPU."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if func == Tensor.device.__get__:
            return GPU
        if func == Tensor.grad.__get__:  # torch gives it as a plain tensor
            with torch._C.DisableTorchFunctionSubclass():
                found = func(*args)
            return found if found is None else found.as_subclass(Elsewhere)
        if func in (Tensor.is_cuda.__get__, Tensor.is_cpu.__get__):
            return func == Tensor.is_cuda.__get__
        if name in REFUSED:
            raise TypeError(f"{name} of a tensor on the GPU: move it to the CPU first")
        if name not in MEETING_BOTH:
            plain = [each for each in _tensors(args) if not isinstance(each, Elsewhere) and each.dim() > 0]
            if plain:
                raise RuntimeError(
                    f"{name} of tensors on both devices, on the CPU one of shape {tuple(plain[0].shape)}"
                )
        found = super().__torch_function__(func, types, args, kwargs or {})
        if name == "cpu" or (name == "to" and _asked_for(args[1:], kwargs, "cpu")):
            return found.as_subclass(Tensor) if isinstance(found, Elsewhere) else found
        return found


class _Placing(TorchFunctionMode):
    """What is asked for on "cuda" is made on the CPU, as what is elsewhere."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if not _asked_for(args, given, "cuda"):
            return func(*args, **given)
        args = tuple(CPU if _is(each, "cuda") else each for each in args)
        given = {name: CPU if _is(each, "cuda") else each for name, each in given.items()}
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **given)
        return found.as_subclass(Elsewhere)


@contextmanager
def pretended_gpu() -> Iterator[Callable[[Any], Tensor]]:
    """Within, "cuda" is a device; gives the way of putting values there."""
    with _Placing():
        yield lambda values: torch.as_tensor(values).to(GPU)


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, torch.device):
        return value.type == kind
    return isinstance(value, str) and value.partition(":")[0] == kind


def _asked_for(args: Iterable[Any], kwargs: dict[str, Any] | None, kind: str) -> bool:
    return any(_is(each, kind) for each in (*args, *(kwargs or {}).values()))


def _tensors(given: Any) -> Iterable[Tensor]:
    for each in given:
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, (tuple, list)):
            yield from _tensors(each)
