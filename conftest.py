"""Doctests are collected from every module; these import triton, which only CUDA builds of torch bring along."""

from __future__ import annotations

import importlib.util

collect_ignore = (
    []
    if importlib.util.find_spec("triton")
    else [
        "src/restt/chain/cuda/backward.py",
        "src/restt/chain/cuda/forward.py",
        "src/restt/chain/cuda/gradients.py",
        "src/restt/train/adam_kernel.py",
        "tests/chain/cuda/compile_kernels.py",
    ]
)
