"""
Which rows to label next
========================

Twelve labels, and 400 candidates: the ten rows whose labels are expected to lower the variance of all predictions most.
"""

import matplotlib.pyplot as plt
import numpy as np

from restt import ResTTRegressor
from restt.design import next_rows

rng = np.random.default_rng(0)
labelled = rng.uniform(-1, 0.2, (12, 2))  # one corner is well known
y = np.sin(3 * labelled[:, 0]) + labelled[:, 1] + 0.05 * rng.standard_normal(12)
candidates = rng.uniform(-1, 1, (400, 2))

model = ResTTRegressor(effort="quick", random_state=0).fit(labelled, y)
chosen = next_rows(model, candidates, k=10)
_, std = model.predict(candidates, return_std=True)

# %%
# The chosen rows lie where the model is unsure, and apart from each other.
_, axes = plt.subplots(layout="constrained")
dots = axes.scatter(*candidates.T, c=std, s=12, cmap="viridis")
axes.scatter(*labelled.T, marker="s", color="black", label="labelled")
axes.scatter(*candidates[chosen].T, facecolors="none", edgecolors="red", s=80, label="next")
axes.figure.colorbar(dots, label="predicted standard deviation")
axes.set(xlabel="x0", ylabel="x1")
axes.figure.legend(loc="outside upper center", ncols=2)
