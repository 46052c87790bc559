"""Doctests are collected from every module but two aliases, and those that import triton, where there is none."""

from __future__ import annotations

import importlib.util

collect_ignore = ["src/restt/baselines.py", "src/restt/workflow.py"]
if not importlib.util.find_spec("triton"):
    collect_ignore += [
        "src/restt/chain/cuda/backward.py",
        "src/restt/chain/cuda/forward.py",
        "src/restt/chain/cuda/gradients.py",
        "src/restt/train/adam_kernel.py",
        "tests/chain/cuda/compile_kernels.py",
    ]
