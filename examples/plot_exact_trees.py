"""
Explain my LightGBM model exactly
=================================

A tree ensemble is a sum of products over binned columns, so it is a train, and nothing about it has to be sampled:
Shapley values, orders of interaction, shares of the variance, and interactions that are proven to be the largest.
XGBoost, CatBoost and scikit-learn's forests and boosting go the same way; the last stands in where LightGBM is missing.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from restt import explain

try:
    from lightgbm import LGBMRegressor

    model = LGBMRegressor(random_state=0, verbose=-1)
except ImportError:
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(random_state=0)

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
model.fit(X, y)

# %%
# The same function, to rounding.
trees = explain.from_trees(model)
print(trees)
print(np.abs(trees.predict(X)[:, 0] - model.predict(X)).max())

# %%
# Why this row has its prediction; absent columns are averaged over the table.
found = explain.explain_local(trees, X[:100], X)
found[0].plot("waterfall")

# %%
# The whole model: how much of its variance each order of interaction has, and which interactions are the largest.
for order, share in enumerate(explain.sobol_indices(trees, X, max_order=4).by_order[:, 0].tolist()):
    print(f"order {order}: {share:.1%}")
top = explain.top_interactions(trees, X, k=12, max_order=3)
print("proven complete" if top.complete else f"an unseen term has at most {top.bound:.3g}")
for term in top.terms:
    print(f"{term.label}: {float(term.share):.2%}")

# %%
# A main effect and what two columns do together, step by step as the trees have them.
_, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
explain.effect(trees, "bmi", X).plot(axes=axes[0])
pair = next(term.names for term in top.terms if len(term.names) == 2)
explain.effect(trees, pair, X).plot(axes=axes[1])
