"""Forked processes: torch's threads do not survive a fork, and the first product in the child waits for them forever.

Whether a process is one of those cannot be asked of torch, so it is tried out in a process of its own.
"""

from __future__ import annotations

import os
import signal
import time
import warnings

import torch

# Numbers that torch works on with all its threads, and seconds after which threads that have not answered are lost.
ENOUGH_FOR_THREADS = 2**20
PATIENCE = 5.0

_forked = False  # and not yet known to work


def refuse_lost_threads(action: str) -> None:
    """RuntimeError where ``action`` would hang: in a forked process whose parent had computed on several threads."""
    global _forked
    if not _forked or torch.get_num_threads() == 1:
        return
    if not _threads_answer():
        raise RuntimeError(
            f"{action} would hang: this process was forked from one that had already computed on several threads, "
            "which do not survive a fork. Start processes with multiprocessing.get_context('spawn'), as joblib does by "
            "default, or call torch.set_num_threads(1) first"
        )
    _forked = False


def _threads_answer() -> bool:
    """Whether a copy of this process gets a small computation done in time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: this one only computes and ends
        copy = os.fork()
    if copy == 0:
        try:
            torch.ones(ENOUGH_FOR_THREADS).exp_()
        finally:
            os._exit(0)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if os.waitpid(copy, os.WNOHANG)[0] == copy:
            return True
        time.sleep(0.002)
    os.kill(copy, signal.SIGKILL)
    os.waitpid(copy, 0)
    return False


def _note_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
