"""Compiled C code and GPU kernels, made ahead of a first fit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import torch

from restt._common.devices import read_device
from restt._common.errors import check_choice, warn_caller
from restt.chain.cpu import build
from restt.chain.precision import PRECISIONS


def warm_up(device: str | torch.device = "auto", precisions: tuple[str, ...] = ("float32",)) -> dict[str, float]:
    """Compile what a first fit on this machine would wait for, and keep it for every later process.

    The C code of the CPU path goes into restt's cache folder, kernels of the usual sizes for a GPU into Triton's
    (``~/.triton/cache``, or ``TRITON_CACHE_DIR``). Kernels serve all bond dimensions of one tile (up to 16, 32, 64 and
    128), so few are left to be compiled by a fit. Without a GPU only the C code is built.

    Parameters
    ----------
    device : str or torch.device
        Where fits are to run; ``"auto"`` is a GPU if there is one.
    precisions : tuple of str
        How the GPU kernels are to multiply, see :func:`restt.chain.precision`.

    Returns
    -------
    dict
        Seconds by part: ``"C code"`` and, on a GPU, ``"kernels"`` and ``"training"``.

    Examples
    --------
    >>> import restt
    >>> list(restt.warm_up("cpu"))
    ['C code']
    """
    for precision in precisions:
        check_choice("precisions", precision, PRECISIONS)
    place = read_device(device, work=math.inf)
    seconds = {"C code": _timed(_build)}
    if place.type == "cuda":
        from restt.chain.cuda.ahead import compile_ahead
        from restt.chain.cuda.contraction import triton_problem

        if (problem := triton_problem()) is not None:
            warn_caller(f"no GPU kernels were compiled: {problem}", RuntimeWarning)
            return seconds
        seconds["kernels"] = _timed(lambda: compile_ahead(place, precisions))
        seconds["training"] = _timed(lambda: _train(place))
    return seconds


def _build() -> None:
    """Build every C file of the library."""
    for dtype in build.TYPES:
        build.problem(dtype)
    for source in sorted(Path(__file__).parent.rglob("*.c")):
        if source != build.SOURCE:
            build.library(source)


def _train(device: torch.device) -> None:
    """A training of two steps: the optimizer's kernel, and what torch loads at its first use."""
    from restt.module import ResTT
    from restt.train import TrainConfig, train

    module = ResTT(4, 2, 10, 1, bias=True, runs=1, device=device)
    x, y = torch.rand(1024, 4, 2, device=device), torch.rand(1024, 1, device=device)
    list(train(module, x, y, config=TrainConfig(epochs=2, batch_size=512, loss="mse")))


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
