"""
From CSV to page
================

A file of numbers, text and gaps becomes a model, predictions with intervals, and one HTML page that explains it.
``restt fit``, ``restt predict`` and ``restt explain`` do the same from a shell.
"""

from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from restt import workflow

rng = np.random.default_rng(0)
flats = pd.DataFrame({"area": rng.uniform(30, 120, 150), "floor": rng.integers(0, 6, 150)})
flats["district"] = rng.choice(["north", "south", "harbour"], 150)
rent = 8 * flats["area"] + 3 * flats["area"] * (flats["district"] == "harbour") + 15 * flats["floor"]
flats["rent"] = (rent + rng.normal(0, 40, 150)).round()
flats.loc[::17, "floor"] = None
folder = Path(mkdtemp())
flats.to_csv(folder / "flats.csv", index=False)

# %%
# Types and gaps are read from the file; the score is on rows that were held out.
fitted = workflow.fit_table(folder / "flats.csv", "rent", effort="quick")
fitted.save(folder / "model")
print(fitted.card.task, [column.name for column in fitted.columns])

# %%
# Predictions with 90 % intervals, for a file without the target.
new = flats.drop(columns="rent").head(40)
predicted = workflow.predict_table(folder / "model", new)
print(predicted.head(4).round(1))

# %%
# The same beside the rents. These rows were in the fit; the page has held-out ones.
rents = flats["rent"].head(40)
off = np.abs(predicted[["low", "high"]].to_numpy() - predicted[["prediction"]].to_numpy()).T
_, axes = plt.subplots(layout="constrained")
axes.errorbar(predicted["prediction"], rents, xerr=off, fmt="o", markersize=4, elinewidth=1)
axes.axline((500, 500), slope=1, color="black", linewidth=1)
axes.set(xlabel="predicted rent, with its 90 % interval", ylabel="rent")

# %%
# One page with everything in it, to open in a browser or to send.
page = workflow.explain_table(folder / "model", folder / "flats.csv", folder / "page.html")
print((folder / "page.html").stat().st_size // 1024, "kB")
