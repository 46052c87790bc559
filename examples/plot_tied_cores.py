"""
Sequences with one core
=======================

A residual train whose core is the same at every step: sequences of any length, and a state that is carried on.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from restt import ResTTSequenceClassifier

rng = np.random.default_rng(0)
speed = rng.integers(0, 2, 80)
X = [
    np.sin((0.3 + 0.3 * s) * np.arange(n)) + 0.2 * rng.standard_normal(n)
    for s, n in zip(speed, rng.integers(15, 40, 80), strict=True)
]
model = ResTTSequenceClassifier(bond_dim=6, epochs=60, random_state=0).fit(X[:50], speed[:50])
print(f"accuracy on new sequences {model.score(X[50:], speed[50:]):.2f}, {model.module_.num_parameters()} weights")

# %%
# The probability of the fast class while a sequence is still coming in: one state, one step at a time.
_, axes = plt.subplots(layout="constrained")
for place in range(50, 56):
    steps, state, seen = model.scaling_.features([X[place][:, None]]), None, []
    for t in range(steps.shape[1]):
        with torch.no_grad():
            output, state = model.module_.stream(steps[:, t : t + 1], state)
        seen.append(float(output.softmax(1)[0, 1]))
    axes.plot(seen, color="C1" if speed[place] else "C0")
axes.set(xlabel="step", ylabel="probability of the fast class")
