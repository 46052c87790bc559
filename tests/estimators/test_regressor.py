import numpy as np
import pytest

from restt.estimators import ResTTRegressor
from restt.estimators.targets import Values
from tests.estimators.conftest import QUICK


def test_several_outputs_keep_their_scales(numbers):
    x, y = numbers
    both = np.column_stack([y, 1000 * x[:, 0] + 7])
    model = ResTTRegressor(**{**QUICK, "epochs": 60}, penalty=1e-3).fit(x, both)
    found = model.predict(x)
    assert found.shape == (60, 2)
    assert model.score(x, both) > 0.9
    assert abs(found[:, 1].mean() - both[:, 1].mean()) < 50
    assert ResTTRegressor(**QUICK).fit(x, y[:, None]).predict(x).shape == (60, 1)


def test_return_std_is_the_spread_of_the_members(fitted_regressor):
    x = np.random.default_rng(4).normal(size=(5, 3))
    mean, std = fitted_regressor.predict(x, return_std=True)
    members = fitted_regressor.target_.decode(fitted_regressor._members(x))
    assert members.shape == (2, 5)
    np.testing.assert_allclose(mean, members.mean(axis=0))
    np.testing.assert_allclose(std, members.std(axis=0))
    assert (std > 0).all()


def test_one_member_has_no_spread(numbers):
    x, y = numbers
    with pytest.raises(ValueError, match="needs runs of at least 2, got runs=1"):
        ResTTRegressor(**QUICK).fit(x, y).predict(x, return_std=True)


def test_weighted_scale_of_targets():
    values = Values.fit(np.array([1.0, 3.0, 100.0]), np.array([1.0, 1.0, 0.5]))
    repeated = Values.fit(np.array([1.0, 1.0, 3.0, 3.0, 100.0]), np.ones(5))
    np.testing.assert_allclose([values.mean, values.scale], [repeated.mean, repeated.scale])
    np.testing.assert_allclose(values.decode(values.encode(np.array([5.0])).numpy()), [5.0])


def test_a_target_that_is_constant_up_to_rounding_keeps_scale_one():
    y = np.full(7, 0.1) * 3
    y[3] = np.nextafter(y[3], 1)
    assert Values.fit(y, np.ones(7)).scale.tolist() == [1.0]
