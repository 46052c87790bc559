"""
Why this prediction?
====================

Exact Shapley values of a single row, what each order of interaction contributes, and what would change it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from restt import ResTTRegressor

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
model = ResTTRegressor(random_state=0).fit(X, y)
row = X.iloc[[np.argmax(model.predict(X))]]

# %%
# From the average prediction to this row's: the values sum to the difference exactly.
found = model.explain_local(row).on("y")
found.plot("waterfall")
print(float(found.base[0] + found.values.sum()), float(model.predict(row)[0]))

# %%
# How much of it is main effects, and how much interaction.
for order, part in enumerate(found.orders[0, :, 0].tolist()):
    if abs(part) > 0.05:
        print(f"order {order}: {part:+.2f}")

# %%
# What would change it: the same row with another blood pressure.
pressures = np.linspace(X["bp"].min(), X["bp"].max(), 60)
others = row.loc[row.index.repeat(60)].assign(bp=pressures)
low, high = model.predict_interval(others, 0.5).T
_, axes = plt.subplots(layout="constrained")
axes.fill_between(pressures, low, high, alpha=0.2)
axes.plot(pressures, model.predict(others))
axes.axvline(row["bp"].item(), color="black", linestyle=":")
axes.set(xlabel="bp", ylabel="prediction for this row")
