"""
An interaction that no tree ensemble can name
=============================================

y is the product of two columns, so neither of them matters alone. A forest predicts some of it, but its importances say
nothing of *together*. The train's expansion does, and proves that its list is complete.
"""

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from restt import ResTTRegressor, explain

rng = np.random.default_rng(0)
X = rng.standard_normal((500, 8))
y = X[:, 1] * X[:, 4] + 0.3 * X[:, 6] + 0.1 * rng.standard_normal(500)
X_train, X_test, y_train, y_test = X[:300], X[300:], y[:300], y[300:]

# %%
# The forest's two largest importances are the right columns; that they act as a product is not in them.
forest = RandomForestRegressor(random_state=0).fit(X_train, y_train)
print(f"forest R² {forest.score(X_test, y_test):.2f}, importances {forest.feature_importances_.round(2)}")

# %%
# The residual train's terms, ranked by their exact variance.
model = ResTTRegressor(random_state=0).fit(X_train, y_train)
print(f"ResTT R² {model.score(X_test, y_test):.2f}")
terms = explain.top_interactions(model, X_train, k=4, max_order=3)
for term in terms.terms:
    print(f"{term.label:10} {float(term.share[0]):7.2%} of the variance")
print("proven complete:", terms.complete)

# %%
# Its surface is the saddle that made the data.
explain.effect(model, [1, 4]).plot()
