"""An output that never changes beside one that does."""

import numpy as np

from restt import ResTTRegressor


def test_values_in_units_of_y_are_finite_and_sum_to_predictions():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 2))
    y = np.column_stack([np.exp(x[:, 0]), np.full(40, 3.0)])
    model = ResTTRegressor(effort="quick", random_state=0).fit(x, y)
    explained = model.explain_local(x[:5]).on("y")
    assert np.isfinite(explained.values).all()
    assert np.allclose(explained.base + explained.values.sum(1), model.predict(x[:5]))
    assert np.allclose(explained.values[..., 1], 0)
