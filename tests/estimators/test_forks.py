"""A forked process that would hang is told so at once; one that would not is left alone."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import multiprocessing
import numpy as np, torch
from restt.estimators import ResTTNetRegressor

torch.set_num_threads(2)
x = np.random.default_rng(0).normal(size=(40, 2))

def child(threads):
    torch.set_num_threads(threads)
    try:
        ResTTNetRegressor(bond_dim=2, epochs=2, random_state=0).fit(x, x[:, 0])
        print("fitted", flush=True)
    except RuntimeError as error:
        print(error, flush=True)

def fork(threads):
    process = multiprocessing.get_context("fork").Process(target=child, args=(threads,))
    process.start()
    process.join(60)
    if process.is_alive():
        print("hangs", flush=True)
        process.kill()

fork(threads=2)
torch.rand(2_000_000).exp().sum()
fork(threads=2)
fork(threads=1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_fit_in_a_forked_process():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=True)
    idle_parent, lost_threads, one_thread = done.stdout.splitlines()
    assert idle_parent == "fitted"
    assert lost_threads.startswith("fit would hang: this process was forked from one that had already computed")
    assert "multiprocessing.get_context('spawn')" in lost_threads
    assert "torch.set_num_threads(1)" in lost_threads
    assert one_thread == "fitted"
