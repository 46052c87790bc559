"""Processes that train one model together, as torch.distributed starts them: what each does, and what they agree on.

Every process is given the same arguments and rows. A batch is cut into as many parts as there are processes, each adds
up the gradient of its part, and one sum over all makes the gradient of the batch, so that every process takes the same
step as one process alone would. What decides anything is the same number everywhere: rank 0's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from restt._common.errors import shown

Value = TypeVar("Value")


class LostRank(RuntimeError):
    """Another process of the group has ended, or did not answer within the group's timeout."""


class Ranks:
    """Place of this process in a group; without a group it is the only one, and nothing is ever sent."""

    def __init__(self, group: Any = None) -> None:
        self.group = group
        self.rank = 0 if group is None else dist.get_rank(group)
        self.size = 1 if group is None else dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError("group must be one that this process belongs to, got a group without it")

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes and prints."""
        return self.rank == 0

    def part(self, count: int) -> tuple[int, int]:
        """Which of ``count`` rows are this rank's: from the first number to before the second.

        >>> Ranks().part(5)
        (0, 5)
        """
        return count * self.rank // self.size, count * (self.rank + 1) // self.size

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the ranks; all are of one dtype and travel as one."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with self._answered():
            dist.all_reduce(flat, group=self.group)
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def same(self, value: Value) -> Value:
        """Rank 0's ``value``, whatever Python object it is."""
        if self.size == 1:
            return value
        held = [value]
        with self._answered():
            dist.broadcast_object_list(held, src=self._root, group=self.group)
        return held[0]

    def same_tensors(self, tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
        """Rank 0's tensors by name; what the others have is not looked at."""
        if self.size == 1:
            return dict(tensors)
        shapes = self.same([(name, value.shape, value.dtype) for name, value in tensors.items()])
        found = {}
        for name, shape, dtype in shapes:
            held = tensors[name].contiguous() if self.first else torch.empty(shape, dtype=dtype, device=device)
            with self._answered():
                dist.broadcast(held, src=self._root, group=self.group)
            found[name] = held
        return found

    def all(self, value: Value) -> list[Value]:
        """Every rank's ``value``, in the order of ranks."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        with self._answered():
            dist.all_gather_object(found, value, group=self.group)
        return found

    @contextmanager
    def agreed(self, what: str) -> Iterator[None]:
        """Every rank gets through the block, or all of them raise: none is left waiting for one that cannot go on.

        ``what`` the block does is told to the ranks that could.
        """
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            failure = error
        told = self.all(None if failure is None else f"{type(failure).__name__}: {failure}")
        if failure is not None:
            raise failure
        for rank, text in enumerate(told):
            if text is not None:
                raise RuntimeError(f"rank {rank} of {self.size} could not {what}: {text}")

    def check_same(self, entries: Mapping[str, Any]) -> None:
        """ValueError on every rank where one was given something else than rank 0, saying what."""
        everyone = self.all(dict(entries))
        lines = [
            f"{name}: {everyone[0].get(name)} on rank 0, {theirs.get(name)} on rank {rank}"
            for rank, theirs in enumerate(everyone)
            for name in [*everyone[0], *(name for name in theirs if name not in everyone[0])]
            if everyone[0].get(name) != theirs.get(name)
        ]
        if lines:
            raise ValueError(
                f"the {self.size} processes that train together must be given the same arguments and rows, got\n  "
                + "\n  ".join(lines)
            )

    @property
    def _root(self) -> int:
        return dist.get_global_rank(self.group, 0)

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise LostRank(
                f"rank {self.rank} of {self.size} no longer hears from the others, one of which has ended or did not "
                f"answer within the timeout of init_process_group ({str(error).splitlines()[0]})"
            ) from error


ALONE = Ranks()


def read_group(group: Any) -> Ranks:
    """The ranks of ``group``; of ``"auto"`` those of the default group where torch.distributed was initialised.

    >>> read_group("auto").size
    1
    """
    if isinstance(group, str) and group == "auto":
        found = dist.is_available() and dist.is_initialized()
        return Ranks(dist.group.WORLD) if found else ALONE
    if group is None:
        return ALONE
    if not dist.is_available() or not isinstance(group, dist.ProcessGroup):
        raise TypeError(f'group must be "auto", None or a torch.distributed.ProcessGroup, got {shown(group)}')
    return Ranks(group)
