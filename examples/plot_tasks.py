"""
Several tasks in one train
==========================

Four tasks of 15 rows each that share a curve. The task is a column; what is shared is read off its Sobol indices.
"""

import matplotlib.pyplot as plt
import numpy as np

from restt import ResTTRegressor, tasks

rng = np.random.default_rng(0)
tables = {}
for k in range(4):
    x = rng.uniform(-1, 1, (15, 1))
    tables[f"task {k}"] = x, np.sin(4 * x[:, 0]) + k + 0.3 * k * x[:, 0] + 0.1 * rng.standard_normal(15)

model = ResTTRegressor(effort="quick", handle_unknown="error", random_state=0).fit(*tasks.join(tables))
print(tasks.shared(model))

# %%
grid = np.linspace(-1, 1, 100)[:, None]
_, axes = plt.subplots(layout="constrained")
for name, (x, y) in tables.items():
    (line,) = axes.plot(grid, model.predict(tasks.as_task(grid, name)), label=name)
    axes.scatter(x, y, color=line.get_color(), s=12)
axes.legend()
