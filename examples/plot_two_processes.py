"""
Two processes, one model
========================

Under ``torchrun`` the same call trains one model in several processes, on one machine or many. Each process does its
part of every batch, and the result is that of one process up to rounding.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

# %%
# A script for ``torchrun``: all that is new is the first line of ``main``. On GPUs the backend is ``nccl``, and each
# process sets its device with ``torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))``.
SCRIPT = """
import datetime, json, os, sys
import torch
import restt
from restt.train import TrainConfig, train

torch.set_num_threads(1)
if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
x = torch.rand(2000, 8, 2, generator=torch.Generator().manual_seed(0))
y = x[:, 0, 0] * x[:, 3, 1] - x[:, 5, 0]
module = restt.ResTT(sites=8, feature_dim=2, bond_dim=6, outputs=1)
module.reset_parameters(seed=0)
config = TrainConfig(epochs=15, batch_size=128, lr=0.01, seed=0)
losses = [record.train_loss[0] for record in train(module, x, y, config=config)]
if os.environ.get("RANK", "0") == "0":
    with open(sys.argv[1], "w") as file:
        json.dump(losses, file)
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
"""


def losses_of(*launcher: str) -> list[float]:
    """The losses of the script, started by ``launcher``."""
    with tempfile.TemporaryDirectory() as folder:
        script, result = Path(folder) / "script.py", Path(folder) / "losses.json"
        script.write_text(SCRIPT)
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        command = [sys.executable, *launcher, str(script), str(result)]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)
        return json.loads(result.read_text())


# %%
# ``torchrun --standalone --nproc-per-node 2 script.py``, and the script alone.
two = losses_of("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
one = losses_of()
print("largest difference of an epoch's loss:", max(abs(a - b) for a, b in zip(one, two, strict=True)))

# %%
# The two curves are one.
_, axes = plt.subplots(layout="constrained")
axes.semilogy(range(1, 16), one, label="one process", linewidth=4, alpha=0.4)
axes.semilogy(range(1, 16), two, label="two processes", linestyle="--")
axes.set(xlabel="epoch", ylabel="training loss")
axes.legend()
plt.show()
