"""Processes of torch.distributed that train one model together.

Every process is given the same arguments and rows. A batch is cut into as many parts as there are processes, each adds
up the gradient of its part, and one sum over all makes the gradient of the batch, so that every process takes the same
step as one process alone would. Every decision is made by rank 0's numbers.
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
        """Return the range of this rank's part of ``count`` rows.

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
        """Return rank 0's ``value``, any Python object."""
        if self.size == 1:
            return value
        values = [value]
        with self._answered():
            dist.broadcast_object_list(values, src=self._root, group=self.group)
        return values[0]

    def all(self, value: Value) -> list[Value]:
        """Return every rank's ``value``, in the order of ranks."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with self._answered():
            dist.all_gather_object(values, value, group=self.group)
        return values

    @contextmanager
    def agreed(self, what: str) -> Iterator[None]:
        """Let all ranks get through the block or all raise, so that none waits for one that has failed.

        ``what`` describes the block in the error of the ranks that could.
        """
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            failure = error
        texts = self.all(None if failure is None else f"{type(failure).__name__}: {failure}")
        if failure is not None:
            raise failure
        for rank, text in enumerate(texts):
            if text is not None:
                raise RuntimeError(f"rank {rank} of {self.size} could not {what}: {text}")

    def check_same(self, entries: Mapping[str, Any]) -> None:
        """Raise ValueError on every rank where one was given other entries than rank 0, with the difference."""
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
    """Return the ranks of ``group``; ``"auto"`` is the default group where torch.distributed was initialised.

    >>> read_group("auto").size
    1
    """
    if isinstance(group, str) and group == "auto":
        return Ranks(dist.group.WORLD) if dist.is_available() and dist.is_initialized() else ALONE
    if group is None:
        return ALONE
    if not dist.is_available() or not isinstance(group, dist.ProcessGroup):
        raise TypeError(f'group must be "auto", None or a torch.distributed.ProcessGroup, got {shown(group)}')
    return Ranks(group)
