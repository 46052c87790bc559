import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restt_bench.growth import fit_exponential, fit_power


@given(st.floats(0.1, 3.5), st.floats(1e-6, 1e3))
def test_the_exponent_of_exact_powers(exponent, scale):
    sizes = [5, 10, 20, 50, 100]
    found = fit_power(sizes, [scale * size**exponent for size in sizes])
    assert found.slope == pytest.approx(exponent, abs=1e-9)
    assert found.r_squared == pytest.approx(1.0)


def test_noise_moves_the_exponent_little_and_lowers_the_fit():
    sizes = [10, 20, 40, 80, 160]
    noise = [1.1, 0.9, 1.05, 0.95, 1.1]
    found = fit_power(sizes, [1e-3 * size**2 * factor for size, factor in zip(sizes, noise, strict=True)])
    assert found.slope == pytest.approx(2.0, abs=0.05)
    assert 0.99 < found.r_squared < 1


def test_a_fixed_cost_flattens_the_exponent():
    sizes = [1, 2, 4, 8]
    assert fit_power(sizes, [100 + size for size in sizes]).slope < 0.1


def test_the_factor_of_an_exponential():
    assert fit_exponential([4, 6, 8], [2.0**n for n in (4, 6, 8)]).factor == pytest.approx(2.0)
    assert fit_exponential([4, 6, 8], [3.0**n for n in (4, 6, 8)]).factor == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("sizes", "seconds", "message"),
    [
        ([1], [1.0], "two different sizes"),
        ([2, 2], [1.0, 2.0], "two different sizes"),
        ([1, 2], [1.0], "one time per size"),
        ([0, 2], [1.0, 2.0], "sizes must hold"),
        ([1, 2], [1.0, math.nan], "seconds must hold"),
    ],
)
def test_bad_points_are_refused(sizes, seconds, message):
    with pytest.raises(ValueError, match=message):
        fit_power(sizes, seconds)
