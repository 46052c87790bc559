"""
From ResTT to a plain train and back
====================================

With its state extended by a constant, a residual train is a plain one over ``[1, x_n]``. So every tool for tensor
trains applies to it, and what it learned can be made smaller with a known error.
"""

import numpy as np
import torch

import restt
from restt import ResTTRegressor, explain

torch.manual_seed(0)
model = restt.ResTT(sites=8, feature_dim=2, bond_dim=6, outputs=1, dtype=torch.float64)
x = torch.rand(100, 8, 2, dtype=torch.float64)

# %%
# Cores of bond r + 1, the constant first. Contracting them by hand gives the model's outputs.
cores = model.cores()
print([tuple(core.shape) for core in cores][:3], "…")
state = torch.ones(100, 1, dtype=torch.float64)
for n, core in enumerate(cores):
    features = torch.cat([torch.ones(100, 1, dtype=torch.float64), x[:, n]], dim=1)
    state = torch.einsum("bl,bi,lir->br", state, features, core)
print("largest difference", (state - model(x)).abs().max().item())

# %%
# And back.
again = restt.ResTT.from_cores(cores)
print("back again", (again(x) - model(x)).abs().max().item())

# %%
# A fitted model, made smaller: its predictions may differ by at most 2 % of their spread, and the error is computed,
# not estimated.
rng = np.random.default_rng(0)
table = rng.random((200, 6))
fitted = ResTTRegressor(bond_dim=20, random_state=0).fit(table, np.sin(6 * table[:, 0]) * table[:, 1] + table[:, 2])
small = explain.prune(fitted, tolerance=0.02)
print(f"{small.way}: {small.parameters_before} to {small.parameters} parameters, error {small.error:.4f}")
