"""
A nonlinear system, identified
==============================

A filter, a square and a product of two lags, seen through noise. The kernels of the Volterra series come back order by
order.
"""

import matplotlib.pyplot as plt
import numpy as np

from restt import VolterraRegressor

rng = np.random.default_rng(0)
u = rng.standard_normal(3000)
filtered = np.convolve(u, [0.8, 0.5, 0.2])[: len(u)]
lagged = np.append(0, u[:-1])
y = 0.3 + filtered + 0.4 * u * lagged - 0.2 * lagged**2 + 0.05 * rng.standard_normal(len(u))

# %%
# Ridge regression over all distinct products of lags; the penalty by exact leave-one-out.
model = VolterraRegressor(order=2, memory=5).fit(u[:2000], y[:2000])
print(f"R² on new samples {model.score(u[2000:], y[2000:]):.4f}")
print("h0", round(model.intercept_, 3), "h1", model.kernels_[1].round(3))

# %%
# The second kernel is symmetric: the product's weight stands on both sides of the diagonal.
_, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
axes[0].stem(model.kernels_[1])
axes[0].set(title="first kernel", xlabel="lag", xticks=range(5))
axes[1].imshow(model.kernels_[2], cmap="coolwarm", vmin=-0.2, vmax=0.2)
axes[1].set(title="second kernel", xlabel="lag", ylabel="lag")
axes[1].figure.colorbar(axes[1].images[0])
