"""
A first fit
===========

A table, no settings: fit, compare on held-out rows, and read what was found.
"""

from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split

from restt import ResTTRegressor

# %%
# Diabetes has 442 rows and 10 columns; its signal is weak, so flexible models overfit it easily.
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
# What the prior learned of each column, in closed form: how much it matters, and how smooth it is.
print(model.prior_)

# %%
# And what the model made of it, exactly: the variance of its predictions by order of interaction and by column.
found = model.explain_global()
found.plot("columns")

# %%
# The shape of a single effect is read off the model, not estimated from its predictions.
found.plot("effect", columns="bmi")
