"""
Your own topology
=================

Connections are chosen site by site, and the topology says exactly which interactions the model then holds, before
anything is trained.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import restt

# %%
# All interactions of four sites; then one skip led to the output instead of on along the chain, one chain core removed.
full = restt.Topology.residual(4)
own = full.skip_to_output(3).without_chain(2)
for topology in (full, own):
    print(topology.name, "orders", topology.orders(), "terms", topology.count_terms())
print("own holds {1, 2}:", own.contains({1, 2}), "  {2, 4}:", own.contains({2, 4}))

# %%
# The picture is that of the paper's Fig. 3.
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "topology.png"
    own.draw(path)
    picture = plt.imread(path)
_, axes = plt.subplots(figsize=(9, 9 * picture.shape[0] / picture.shape[1]), layout="constrained")
axes.imshow(picture)
axes.axis("off")

# %%
# A module with these connections, and what the mean-field theory expects of its signals.
model = restt.ResTT(sites=4, feature_dim=2, bond_dim=8, outputs=1, topology=own)
print(model(torch.rand(5, 4, 2)).shape, model.num_parameters(), "parameters")
print("stable variance:", restt.meanfield.stable_sigma2(own, 1.0))
