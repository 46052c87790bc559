"""
10,000 sites
============

A plain tensor train needs its variance on a knife's edge: slightly more and the signal explodes over the chain,
slightly less and it vanishes. With skips it stays even, however long the chain.
"""

import matplotlib.pyplot as plt
import torch

import restt
from restt.meanfield import predict

SITES = 10_000

# %%
# The theory: the mean square of the signal along the chain, in decades.
_, axes = plt.subplots(layout="constrained")
for sigma2 in (0.99, 1.0, 1.01):
    profile = predict(restt.Topology.plain(SITES), 1.0, sigma2, 20)
    axes.plot(torch.as_tensor(profile.log_q) / 2.302585, label=f"plain, σ² = {sigma2}")
residual = predict(restt.Topology.residual(SITES), 1.0, 1 / SITES, 20)
axes.plot(torch.as_tensor(residual.log_q) / 2.302585, "k", label="residual, σ² = 1/N")
axes.set(xlabel="site", ylabel="log10 of the mean square")
axes.legend(frameon=False)

# %%
# The practice: outputs and gradients of a residual train of 10,000 sites are finite and of order one from the start.
model = restt.ResTT(sites=SITES, feature_dim=2, bond_dim=8, outputs=1)
x = restt.features.Trigonometric()(torch.rand(16, SITES))
output = model(x)
output.square().mean().backward()
first, last = model.chain.grad[0].norm().item(), model.chain.grad[-1].norm().item()
print(f"output {output.std().item():.3f}, gradient of the first inner core {first:.2e}, of the last {last:.2e}")
