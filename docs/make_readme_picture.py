"""The README's picture: what a default fit of scikit-learn's diabetes table found.

python docs/make_readme_picture.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

from restt import ResTTRegressor

NAMES = {"s1": "cholesterol", "s2": "ldl", "s3": "hdl", "s4": "ratio", "s5": "triglycerides", "s6": "glucose"}

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
found = ResTTRegressor(random_state=0).fit(X.rename(columns=NAMES), y).explain_global()
figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
found.plot("columns", axes=axes[0])
axes[0].set_title("Columns: alone, and with interactions")
found.plot("network", axes=axes[1])
axes[1].set_title("The strongest interactions")
pair = next(term for term in found.interactions.terms if len(term.columns) == 2)
found.effect(list(pair.names)).plot(axes=axes[2])
axes[2].set_title(f"The strongest pair: {pair.label}")
figure.savefig(Path(__file__).parent / "images" / "interactions.png", dpi=110)
