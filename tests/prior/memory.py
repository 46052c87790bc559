"""How many bytes of tensors are there at once while something is computed."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts storages that operations make, from when they do until the last tensor on them is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._users: dict[int, int] = {}  # by storage: how many tensors

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {self._key(value) for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)}
        found = function(*args, **(kwargs or {}))
        for value in tree_leaves(found):
            if isinstance(value, torch.Tensor) and (self._key(value) in self._users or self._key(value) not in given):
                self._count(value)
        return found

    @staticmethod
    def _key(value: torch.Tensor) -> int:
        return value.untyped_storage()._cdata

    def _count(self, value: torch.Tensor) -> None:
        key, size = self._key(value), value.untyped_storage().nbytes()
        if key not in self._users:
            self._users[key] = 0
            self.now += size
            self.peak = max(self.peak, self.now)
        self._users[key] += 1
        weakref.finalize(value, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key]
            self.now -= size
