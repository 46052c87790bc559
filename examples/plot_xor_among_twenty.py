"""
XOR of three in twenty columns
==============================

The label is the parity of three binary columns among twenty: no column and no pair of columns says anything about it,
so a greedy split has nothing to go by. A model of all orders only has to learn which columns count.
"""

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import accuracy_score

from restt import ResTTRegressor, explain

rng = np.random.default_rng(0)
X = rng.choice([-1.0, 1.0], (1500, 20))
y = X[:, 3] * X[:, 8] * X[:, 15]
X_train, X_test, y_train, y_test = X[:1000], X[1000:], y[:1000], y[1000:]

# %%
# Boosting finds a part of it, by chance splits that happen to help.
boosting = HistGradientBoostingClassifier(random_state=0).fit(X_train, y_train)
print(f"boosting {accuracy_score(y_test, boosting.predict(X_test)):.3f}")

# %%
# The prior's relevances, learned by marginal likelihood, single out the three columns.
model = ResTTRegressor(random_state=0).fit(X_train, y_train)
print(f"ResTT    {accuracy_score(y_test, np.sign(model.predict(X_test))):.3f}")
print("largest term:", explain.top_interactions(model, k=3, max_order=3)[0].label)

# %%
# Nearly all of the variance is of order 3.
model.explain_global().plot("orders")
