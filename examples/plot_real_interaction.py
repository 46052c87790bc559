"""
Is this interaction real?
=========================

y is a product of two columns and a little of a third. A forest predicts some of it, but its importances say nothing of
*together*. The train's expansion names the pair, and the posterior says how sure that is.
"""

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from restt import ResTTRegressor, explain

rng = np.random.default_rng(0)
X = rng.standard_normal((400, 6))
y = X[:, 1] * X[:, 4] + 0.3 * X[:, 5] + 0.3 * rng.standard_normal(400)
X_train, X_test, y_train, y_test = X[:200], X[200:], y[:200], y[200:]

# %%
# The forest's two largest importances are the right columns; that they act as a product is not in them.
forest = RandomForestRegressor(random_state=0).fit(X_train, y_train)
print(f"forest R² {forest.score(X_test, y_test):.2f}, importances {forest.feature_importances_.round(2)}")

# %%
# The train's terms, ranked by their exact variance. The list is proven complete: no other term is larger.
model = ResTTRegressor(random_state=0).fit(X_train, y_train)
print(f"ResTT R² {model.score(X_test, y_test):.2f}")
terms = explain.top_interactions(model, X_train, k=4, max_order=3)
for term in terms.terms:
    print(f"{term.label:10} {float(term.share[0]):7.2%} of the variance")
print("proven complete:", terms.complete)

# %%
# Shares of the variance with their posterior standard deviations, and the probability that each is above 1 %. The two
# columns have small effects alone, since terms are centred at the means of the rows, which are not exactly 0.
print(model.explain_global())

# %%
# Its surface is the saddle that made the data; grey, where the effect may be zero.
explain.effect(model, [1, 4]).plot()
