"""The polynomial written out computes what the module does."""

from __future__ import annotations

import pytest
import torch

import restt
from restt.explain import polynomial
from tests.explain import brute


@pytest.mark.parametrize("seed", range(6))
def test_its_terms_sum_to_the_output(seed: int) -> None:
    topology = brute.random_topology(5, seed) if seed else "residual"
    runs, products = (2 if seed == 1 else None), (4 if seed == 5 else 0)
    module = brute.random_module(5, [2, 1, 3, 1, 2], topology=topology, runs=runs, products=products)
    x = brute.random_rows(module, 4)
    variables = {
        f"x{site}[{entry}]" if width > 1 else f"x{site}": x[:, site, entry]
        for site, width in enumerate(module.feature_dims)
        for entry in range(width)
    }
    total = torch.zeros(4, 2, dtype=torch.float64)
    for names, coefficients in polynomial(module).terms.items():
        product = torch.ones(4, dtype=torch.float64)
        for name in names:
            product = product * variables[name]
        total += product[:, None] * coefficients
    torch.testing.assert_close(total, brute.predictions(module, x), rtol=1e-10, atol=1e-10)


def test_a_formula_reads_well() -> None:
    module = restt.ResTT(2, 1, 1, 1, bias=True, dtype=torch.float64)
    with torch.no_grad():
        for name, value in {"first": 1, "last_chain": -2, "last_linear": 0.25, "last_skip": -0.5, "bias": 3}.items():
            getattr(module, name).fill_(value)
    assert str(polynomial(module)) == "output 0 = 3 - 0.5·x0 + 0.25·x1 - 2·x0·x1"
    assert str(polynomial(module, tolerance=1)) == "output 0 = 3 - 2·x0·x1"
    assert str(polynomial(module, tolerance=5)) == "output 0 = 0"


def test_a_polynomial_too_long_to_read_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 262144 coefficients to be written out, got 1073741824"):
        polynomial(restt.ResTT(30, 1, 2, 1))
