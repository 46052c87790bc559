"""
Rows that keep coming
=====================

A model is fitted once and then conditioned on each new batch; its scales stay. When the process changes, the evidence
of a batch says so.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from restt import ResTTRegressor

rng = np.random.default_rng(0)


def batch(rows, shape=3.0):
    x = rng.uniform(-1, 1, (rows, 2))
    return x, np.sin(shape * x[:, 0]) * x[:, 1] + 0.1 * rng.standard_normal(rows)


new, wanted = batch(500)
model = ResTTRegressor(effort="quick", random_state=0).fit(*batch(40))
errors = [np.mean((model.predict(new) - wanted) ** 2) ** 0.5]

# %%
# Six batches of the same process, conditioned on in closed form.
for _ in range(6):
    model.partial_fit(*batch(30))
    errors.append(np.mean((model.predict(new) - wanted) ** 2) ** 0.5)
print(model.fit_report_)

# %%
# Then the process changes. The warning names what to do.
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    model.partial_fit(*batch(60, shape=12.0))
print(found[-1].message if found else "no warning")

# %%
_, axes = plt.subplots(layout="constrained")
axes.plot(range(len(errors)), errors, marker="o")
axes.axhline(0.1, linestyle=":")
axes.set(xlabel="batches", ylabel="error on new rows (dotted: the noise)")
