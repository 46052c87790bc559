"""Kernels with all but their pointers fixed, launched again and again without Triton's own preparations.

Triton binds and specialises every argument of every launch in Python, which for the forty of a sweep takes longer than
the sweep. What it specialises by is known here: numbers and constants do not change, and of a pointer only the
alignment matters. So the compiled kernel of the first launch serves all others with the same alignments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

ALIGNMENT = 16  # bytes; Triton specialises kernels by it


class KernelCall:
    """One kernel, grid and set of numbers and constants, for one device.

    The kernel's parameters are its pointers, then ``numbers`` or tuples of them, then ``constants``, which are given by
    name and may hold launch options (``num_warps``) too.
    """

    def __init__(self, kernel: Any, grid: tuple[int, ...], numbers: tuple[Any, ...], constants: dict[str, Any]) -> None:
        self.kernel, self.grid = kernel, (*grid, 1, 1)[:3]
        self.numbers, self.constants = numbers, constants
        self.remembers = True
        self._launchers: dict[int, Any] = {}
        self._rest: tuple[Any, ...] = ()

    @property
    def pointer_names(self) -> list[str]:
        """Names of the kernel's pointers."""
        names = [name for name in self.kernel.arg_names if name not in self.constants]
        return names[: len(names) - len(self.numbers)]

    def compile(self, *pointers: Any) -> None:
        """Compile the kernel for such pointers, without a launch."""
        self.kernel.warmup(*pointers, *self.numbers, grid=self.grid, **self.constants)

    def __call__(self, *pointers: Any) -> None:
        """Launch; a pointer is a tensor, a tuple of them or a tensor descriptor, always the same at the same place."""
        aligned = _alignments(pointers)
        launch = self._launchers.get(aligned)
        if launch is None:
            self._first_launch(aligned, pointers)
            return
        try:
            launch(*pointers, *self._rest)
        except TypeError:
            # Nothing was launched: a compiled kernel of this Triton takes other arguments than one of Triton 3.6.
            self.remembers = False
            self._first_launch(aligned, pointers)

    def _first_launch(self, aligned: int, pointers: tuple[Any, ...]) -> None:
        compiled = self.kernel[self.grid](*pointers, *self.numbers, **self.constants)
        if compiled is None or not self.remembers:  # an interpreted kernel is no other the second time
            self._launchers.clear()
            return
        names = self.kernel.arg_names[len(pointers) + len(self.numbers) :]
        self._rest = (*self.numbers, *(self.constants[name] for name in names))
        self._launchers[aligned] = compiled[self.grid]


def _alignments(pointers: tuple[Any, ...]) -> int:
    """Alignment of the pointers, one bit each."""
    aligned = 1
    for pointer in pointers:
        if isinstance(pointer, tuple):
            aligned = (aligned << (len(pointer) + 1)) | _alignments(pointer)
            continue
        aligned *= 2
        if not isinstance(pointer, Tensor) or pointer.data_ptr() % ALIGNMENT == 0:
            aligned += 1
    return aligned


class Beside:
    """A place for launches that the next ones need not wait for.

    They go beside those only where a CUDA graph is recorded: elsewhere a second stream costs the host more than it
    saves the GPU. A few programs, or those that are not on the way to the last one, then use processors that a sweep
    leaves idle.
    """

    def __init__(self, device: torch.device) -> None:
        self._current = self._stream = None
        if is_recording(device):
            self._current, self._stream = torch.cuda.current_stream(device), torch.cuda.Stream(device)

    def launch(self, call: Callable[[], T]) -> T:
        """Launch after everything launched so far, here and on the usual stream.

        The caller keeps the call's inputs alive until :meth:`join` and reads its result after that.
        """
        if self._current is None or self._stream is None:
            return call()
        self._stream.wait_stream(self._current)
        with torch.cuda.stream(self._stream):
            return call()

    def join(self) -> None:
        """Have later launches wait for these."""
        if self._current is not None and self._stream is not None:
            self._current.wait_stream(self._stream)


def is_recording(device: torch.device) -> bool:
    """Whether what is launched goes into a CUDA graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
