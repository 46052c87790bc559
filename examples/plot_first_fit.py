"""
Fit and read a table
====================

A table, no settings: fit, compare on held-out rows, and read which columns matter and how.
"""

from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split

from restt import ResTTRegressor

# %%
# Diabetes has 442 rows and 10 columns. Its signal is weak and nearly linear, so a linear model is hard to beat and
# flexible models overfit it easily.
X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)

model = ResTTRegressor(random_state=0).fit(X_train, y_train)
for name, other in [
    ("ResTT", model),
    ("linear", LinearRegression().fit(X_train, y_train)),
    ("boosting", HistGradientBoostingRegressor(random_state=0).fit(X_train, y_train)),
]:
    print(f"{name:10} R² {other.score(X_test, y_test):.3f}")

# %%
# Predictions come with intervals on y's own scale: half of the rows should lie inside the 50 % ones.
low, high = model.predict_interval(X_test, coverage=0.5).T
print(f"inside 50 % intervals: {((y_test >= low) & (y_test <= high)).mean():.0%}")

# %%
# What the fit learned of each column: how much it matters, and how smooth its effect is.
print(model.prior_)

# %%
# The variance of the predictions by column, alone and with interactions, exactly.
found = model.explain_global()
found.plot("columns")

# %%
# The shape of a single effect is read off the model, not estimated from its predictions.
found.plot("effect", columns="bmi")
