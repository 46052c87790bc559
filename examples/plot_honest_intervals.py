"""
Honest intervals
================

Intervals come from the posterior and the noise together. Where there are rows, they should hold about as many new ones
as was asked. Where there are none, they may not.
"""

import matplotlib.pyplot as plt
import numpy as np

from restt import ResTTRegressor


def truth(x):
    return np.sin(3 * x) + 0.5 * x


rng = np.random.default_rng(1)
x = np.concatenate([rng.uniform(-2, -0.3, 60), rng.uniform(0.9, 2, 60)])
y = truth(x) + 0.2 * rng.standard_normal(120)
model = ResTTRegressor(random_state=0).fit(x[:, None], y)

# %%
# Nothing was seen between -0.3 and 0.9. A column has its knots where its rows are, so there the curve is a straight
# line, and its interval misses the truth.
grid = np.linspace(-2, 2, 200)
low, high = model.predict_interval(grid[:, None], coverage=0.9).T
_, axes = plt.subplots(layout="constrained")
axes.fill_between(grid, low, high, alpha=0.3, label="90 % interval")
axes.plot(grid, model.predict(grid[:, None]), label="prediction")
axes.plot(grid, truth(grid), "k:", label="truth")
axes.scatter(x, y, s=8, color="black")
axes.set(xlabel="x", ylabel="y")
axes.legend(frameon=False)

# %%
# New rows from where the old ones came: the share inside, for several coverages.
x_new = rng.choice(x, 2000) + 0.02 * rng.standard_normal(2000)
y_new = truth(x_new) + 0.2 * rng.standard_normal(2000)
for coverage in (0.5, 0.8, 0.9, 0.95):
    low, high = model.predict_interval(x_new[:, None], coverage).T
    print(f"asked {coverage:.0%}, inside {((y_new >= low) & (y_new <= high)).mean():.1%}")
