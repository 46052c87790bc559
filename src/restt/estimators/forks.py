"""Forked processes: torch's threads do not survive a fork, and the first product in the child waits for them forever.

Nothing can be asked of the dead threads, so what is known is noted before the fork: whether this process has started
threads that are not Python's since restt was imported.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import torch

_TASKS = Path("/proc/self/task")
_at_import = 0
_pool_lost = False


def refuse_lost_threads(action: str) -> None:
    """RuntimeError where ``action`` would hang: in a forked process whose parent had computed on several threads."""
    if _pool_lost and torch.get_num_threads() > 1:
        raise RuntimeError(
            f"{action} would hang: this process was forked from one that had already computed on several threads, "
            "which do not survive a fork. Start processes with multiprocessing.get_context('spawn'), as joblib does by "
            "default, or call torch.set_num_threads(1) first"
        )


def _native_threads() -> int:
    """Threads of this process that are not Python's; 0 where the system does not say."""
    try:
        return len(list(_TASKS.iterdir())) - threading.active_count()
    except OSError:
        return 0


def _before_fork() -> None:
    global _grown
    _grown = _native_threads() > _at_import


def _in_child() -> None:
    global _pool_lost
    _pool_lost = _pool_lost or _grown


_grown = False
if hasattr(os, "register_at_fork"):
    _at_import = _native_threads()
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
