"""A forked process fits on one thread: torch's threads do not survive the fork."""

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

def child():
    torch.rand(2_000_000).exp().sum()
    ResTTNetRegressor(bond_dim=2, epochs=2, random_state=0).fit(x, x[:, 0])
    print("fitted on", torch.get_num_threads(), flush=True)

torch.rand(2_000_000).exp().sum()
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join(60)
if process.is_alive():
    print("hangs", flush=True)
    process.kill()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_fit_in_a_forked_process():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "fitted on 1\n"
