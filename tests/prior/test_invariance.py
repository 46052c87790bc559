"""What a table says does not depend on how it is written: units, zeros, signs and orders."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from restt import prior
from restt.prior import Settings

# Short searches: every one of these takes the same steps.
SHORT = Settings(first_iterations=2, iterations=6, last_iterations=6)
# In root mean square errors of the model. The train is rounded to 0.03 standard deviations of the noise, in an order of
# columns that others may take another way.
MOST = 0.02
Table = tuple[np.ndarray, np.ndarray, list[int | None], np.ndarray]


def smooth() -> Table:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((110, 4))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * rng.standard_normal(110)
    return x, y, [None] * 4, x + 0.3 * rng.standard_normal(x.shape)


def skewed() -> Table:
    """A long tail, a scale of six values, missing values and a category; y is skewed."""
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.lognormal(size=90), rng.integers(0, 6, 90), rng.random(90), rng.integers(0, 4, 90)])
    y = np.exp(0.5 * np.log(x[:, 0]) + 0.4 * x[:, 2] + 0.3 * (x[:, 3] == 2) + 0.3 * rng.standard_normal(90))
    x[rng.random(90) < 0.15, 2] = np.nan
    return x, y, [None, None, None, 4], x[rng.permutation(90)] * [1.1, 1, 0.9, 1]


def steps() -> Table:
    """Jumps and noise of heavy tails."""
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, (130, 3))
    y = 3 * (x[:, 0] > 0.2) + x[:, 1] + 0.5 * rng.standard_t(3, 130)
    return x, y, [None] * 3, rng.uniform(-1, 1, (150, 3))


TABLES: dict[str, Callable[[], Table]] = {"smooth": smooth, "skewed": skewed, "steps": steps}


@cache
def fitted(name: str) -> tuple[np.ndarray, float]:
    """Predictions of new rows, and the root mean square error of leave-one-out predictions."""
    x, y, levels, new = TABLES[name]()
    found = prior.fit(x, y, levels=levels, settings=SHORT)
    return found.predict(new)[:, 0], float(np.sqrt(found.loo_error) * y.std())


def assert_unmoved(name: str, predicted: np.ndarray) -> None:
    expected, error = fitted(name)
    assert np.sqrt(np.mean((predicted - expected) ** 2)) <= MOST * error


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(("a", "sds"), [(-1, 0), (1e-3, 0), (1, 1000)])
def test_the_unit_the_zero_and_the_sign_of_y(name, a, sds):
    x, y, levels, new = TABLES[name]()
    b = sds * y.std() * abs(a)
    found = prior.fit(x, a * y + b, levels=levels, settings=SHORT)
    assert_unmoved(name, (found.predict(new)[:, 0] - b) / a)
    ends = np.sort((found.predict_interval(new)[..., 0] - b) / a, axis=1)
    assert (ends[:, 0] < ends[:, 1]).all()


@pytest.mark.parametrize("name", TABLES)
def test_the_order_of_columns(name):
    x, y, levels, new = TABLES[name]()
    order = np.roll(np.arange(x.shape[1]), 1)[::-1]
    found = prior.fit(x[:, order], y, levels=[levels[n] for n in order], settings=SHORT)
    assert_unmoved(name, found.predict(new[:, order])[:, 0])


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(("scale", "shift"), [(1e3, 0), (-1e-4, 3)])
def test_the_unit_the_zero_and_the_sign_of_columns(name, scale, shift):
    x, y, levels, new = TABLES[name]()
    scales = np.array([scale if count is None else 1 for count in levels])
    shifts = np.array([shift if count is None else 0 for count in levels])
    found = prior.fit(x * scales + shifts, y, levels=levels, settings=SHORT)
    assert_unmoved(name, found.predict(new * scales + shifts)[:, 0])


def test_the_numbers_of_levels():
    x, y, levels, new = skewed()
    other = np.array([2, 0, 3, 1])
    x[:, 3], new[:, 3] = other[x[:, 3].astype(int)], other[new[:, 3].astype(int)]
    assert_unmoved("skewed", prior.fit(x, y, levels=levels, settings=SHORT).predict(new)[:, 0])


@pytest.mark.parametrize("name", TABLES)
def test_the_order_of_rows(name):
    x, y, levels, new = TABLES[name]()
    order = np.random.default_rng(5).permutation(len(x))
    assert_unmoved(name, prior.fit(x[order], y[order], levels=levels, settings=SHORT).predict(new)[:, 0])


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(("value", "levels"), [(3.0, None), (np.nan, None), (1.0, 2)])
def test_a_column_of_one_value(name, value, levels):
    x, y, kinds, new = TABLES[name]()
    more, more_new = (np.column_stack([rows, np.full(len(rows), value)]) for rows in (x, new))
    found = prior.fit(more, y, levels=[*kinds, levels], settings=SHORT)
    assert_unmoved(name, found.predict(more_new)[:, 0])


def test_a_weight_for_all():
    x, y, levels, new = skewed()
    found = prior.fit(x, y, np.ones(len(x)), levels, settings=SHORT)
    np.testing.assert_allclose(found.predict(new)[:, 0], fitted("skewed")[0], rtol=1e-9)


@pytest.mark.parametrize("seed", [0, 1])
def test_one_row_more_moves_predictions_little(seed):
    rng = np.random.default_rng(seed)
    x, new = rng.standard_normal((64, 4)), rng.standard_normal((200, 4))
    y = np.sin(2 * x[:, 0]) + x[:, 1] + 0.3 * rng.standard_normal(64)
    models = [prior.fit(x[:rows], y[:rows]) for rows in range(60, 65)]
    error = np.sqrt(models[0].loo_error) * y.std()
    predicted = [model.predict(new)[:, 0] for model in models]
    for before, after in pairwise(predicted):
        assert np.sqrt(np.mean((after - before) ** 2)) < 0.25 * error


def rare(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Nine of ten y are 0; no column says which."""
    rng = np.random.default_rng(seed)
    y = -np.where(rng.random(200) < 0.1, np.exp(0.5 * rng.normal(size=200)), 0.0)
    return rng.normal(size=(200, 3)), y


@pytest.mark.parametrize("seed", range(4))
def test_the_mean_of_rare_values_is_predicted(seed):
    x, y = rare(seed)
    predicted = prior.fit(x, y, settings=SHORT).predict(x)[:, 0]
    assert abs(predicted.mean() - y.mean()) < 2 * y.std() / 200**0.5


@pytest.mark.parametrize(("a", "b"), [(-1, 0), (1, 1000)])
@pytest.mark.parametrize("seed", range(4))
def test_the_mean_of_rare_values_of_any_sign_and_zero(seed, a, b):
    x, y = rare(seed)
    predicted = (prior.fit(x, a * y + b, settings=SHORT).predict(x)[:, 0] - b) / a
    assert abs(predicted.mean() - y.mean()) < 2 * y.std() / 200**0.5
