"""A forked process that would hang is told so at once."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import multiprocessing, sys
import numpy as np, torch
from restt.estimators import ResTTRegressor

torch.set_num_threads(2)
model = ResTTRegressor(bond_dim=2, epochs=2, random_state=0)
x = np.random.default_rng(0).normal(size=(40, 2))

def child(threads):
    torch.set_num_threads(threads)
    try:
        model.fit(x, x[:, 0])
        print("fitted", flush=True)
    except RuntimeError as error:
        print(error, flush=True)

computed, threads = sys.argv[1] == "computed", int(sys.argv[2])
if computed:
    torch.rand(2_000_000).exp().sum()
process = multiprocessing.get_context("fork").Process(target=child, args=(threads,))
process.start()
process.join(60)
print("hangs" if process.is_alive() else "ended")
process.kill()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize(
    ("parent", "threads", "told"),
    [
        ("computed", 2, "fit would hang: this process was forked from one that had already computed"),
        ("computed", 1, "fitted"),
        ("idle", 2, "fitted"),
    ],
)
def test_fit_in_a_forked_process(parent, threads, told):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, parent, str(threads)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told in done.stdout
    assert done.stdout.endswith("ended\n")
    if told != "fitted":
        assert "multiprocessing.get_context('spawn')" in done.stdout
        assert "torch.set_num_threads(1)" in done.stdout
