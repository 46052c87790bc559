"""The README's picture: explanations of a default fit of scikit-learn's diabetes table.

python docs/make_readme_picture.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

from restt import ResTTRegressor

NAMES = {"s1": "cholesterol", "s2": "ldl", "s3": "hdl", "s4": "ratio", "s5": "triglycerides", "s6": "glucose"}

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X = X.rename(columns=NAMES)
model = ResTTRegressor(random_state=0).fit(X, y)
explained = model.explain_global()
figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
explained.plot("columns", axes=axes[0])
axes[0].set_title("Columns: alone, and with interactions")
model.explain_local(X.iloc[[9]]).plot("waterfall", axes=axes[1])
axes[1].set_title("One row, in y's units; grey: may be nothing")
explained.effect("bmi").plot(axes=axes[2])
axes[2].legend(loc="upper left", frameon=False, fontsize="small")
axes[2].set_title("An effect, in y's units")
figure.savefig(Path(__file__).parent / "images" / "interactions.png", dpi=110)
