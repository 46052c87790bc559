"""The solver's largest arrays: as few and as small as a process that fits a stream can afford."""

import numpy as np
import pytest
import torch

from restt.prior.evidence import cholesky
from restt.prior.fit import fit
from restt.prior.posterior import condition_on_more
from restt.prior.rounding import round_products
from tests.prior.memory import LiveBytes

OWN, ALL = 400, 3000


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    x = rng.random((OWN, 2))
    return fit(x, x[:, 0] * x[:, 1] + 0.1 * rng.standard_normal(OWN), knots=8)


def test_what_is_counted():
    with LiveBytes() as live:
        kept = torch.zeros(10, dtype=torch.float64) + 1
        view = kept[:5]
        (kept * 2).sum()
    assert live.now == 80
    assert live.peak >= 160
    del kept
    assert live.now == 80
    del view
    assert live.now == 0


def test_a_factor_takes_no_more_than_itself():
    matrix = torch.eye(OWN, dtype=torch.float64)
    with LiveBytes() as live:
        cholesky(matrix, torch.ones(OWN, dtype=torch.float64))
    assert live.peak < 1.5 * matrix.nbytes


@pytest.fixture
def states(fitted):
    rows = np.random.default_rng(1).random((2, ALL))
    kernels = fitted.mixture.posteriors[0].prior.kernels
    return [kernel.site.vectors(column) for kernel, column in zip(kernels, rows, strict=True)]


def test_conditioning_on_many_rows_holds_few_matrices(fitted, states):
    with LiveBytes() as live:
        condition_on_more(
            fitted.mixture.posteriors[0], states, torch.zeros(ALL, 1).double(), torch.ones(ALL, dtype=torch.float64)
        )
    square, crossed = 8 * OWN**2, 8 * OWN * 512
    assert live.peak < 3.5 * square + 3.5 * crossed


def test_predicting_many_rows_holds_a_few_at_a_time(fitted, states):
    with LiveBytes() as live:
        fitted.mixture.posteriors[0].mean(states)
        fitted.spread.deviations(states)
    assert live.peak < 8 * OWN * ALL


def test_rounding_many_terms_takes_slices_of_them():
    generator = torch.Generator().manual_seed(0)
    terms, width, sites = 4000, 32, 3
    factors = [torch.rand(terms, width, generator=generator, dtype=torch.float64) for _ in range(sites)]
    moments = [torch.eye(width, dtype=torch.float64) / width] * sites
    with LiveBytes() as live:
        round_products(torch.ones(terms, 1, dtype=torch.float64), factors, moments, 32, 0.0)
    held = 8 * terms * (sites * width + 3 * 42)  # whitened factors and sketches
    assert live.peak < held + 3 * 2**23
