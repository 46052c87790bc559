import numpy as np
import pytest

from restt.estimators import ResTTNetRegressor
from restt.estimators.targets import Values
from tests.estimators.conftest import QUICK


def test_several_outputs_keep_their_scales(numbers):
    x, y = numbers
    both = np.column_stack([y, 1000 * x[:, 0] + 7])
    model = ResTTNetRegressor(**{**QUICK, "epochs": 60}, penalty=1e-3).fit(x, both)
    found = model.predict(x)
    assert found.shape == (60, 2)
    assert model.score(x, both) > 0.9
    assert abs(found[:, 1].mean() - both[:, 1].mean()) < 50
    assert ResTTNetRegressor(**QUICK).fit(x, y[:, None]).predict(x).shape == (60, 1)


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
        ResTTNetRegressor(**QUICK).fit(x, y).predict(x, return_std=True)


def test_weighted_scale_of_targets():
    values = Values.fit(np.array([1.0, 3.0, 100.0]), np.array([1.0, 1.0, 0.5]))
    repeated = Values.fit(np.array([1.0, 1.0, 3.0, 3.0, 100.0]), np.ones(5))
    np.testing.assert_allclose([values.mean, values.scale], [repeated.mean, repeated.scale])
    np.testing.assert_allclose(values.decode(values.encode(np.array([5.0])).numpy()), [5.0])


def test_a_target_that_is_constant_up_to_rounding_is_constant():
    y = np.full(7, 0.1) * 3
    y[3] = np.nextafter(y[3], 1)
    values = Values.fit(y, np.ones(7))
    assert values.scale.tolist() == [0.0]
    assert np.ptp(values.decode(np.array([[5.0], [-3.0]]))) == 0


@pytest.mark.parametrize("constant", [0.1, 7.0, -1e-9, 1e300, 1e-300, 0.0, 1e5 / 3])
def test_a_constant_target_is_predicted_exactly(constant):
    x = np.random.default_rng(0).normal(size=(30, 2))
    model = ResTTNetRegressor(**QUICK).fit(x, np.full(30, constant))
    assert model.predict(10 * x).tolist() == [constant] * 30


def test_one_constant_output_beside_another(numbers):
    x, y = numbers
    found = ResTTNetRegressor(**QUICK).fit(x, np.column_stack([y, np.full(60, 0.1)])).predict(x)
    assert found[:, 1].tolist() == [0.1] * 60
    assert np.corrcoef(found[:, 0], y)[0, 1] > 0.8


@pytest.mark.parametrize("size", [1e160, 1e-200, 1e300, 2.0**-1000])
def test_targets_of_any_size_are_learned_alike(numbers, size):
    x, y = numbers
    want = ResTTNetRegressor(**QUICK).fit(x, y).predict(x)
    found = ResTTNetRegressor(**QUICK).fit(x, y * size).predict(x)
    np.testing.assert_allclose(found / size, want, rtol=1e-6, atol=1e-8)
