"""The solver's largest arrays: as few and as small as a process that fits a stream can afford."""

import numpy as np
import pytest
import torch

from restt.prior import Settings
from restt.prior.gp import Data, Process, cholesky, condition
from restt.prior.rounding import round_products
from restt.prior.sites import rows_of
from tests.prior.memory import LiveBytes
from tests.prior.problems import random_problem

OWN, ALL = 400, 6000


@pytest.fixture
def process():
    kernel, _, _, theta = random_problem(0, rows=60, categories=0)
    return Process(kernel, theta, Settings().components[0], Settings())


def data_of(process, count):
    rng = np.random.default_rng(count)
    rows, ones = rows_of(process.kernel.sites, rng.standard_normal((count, 2))), torch.ones(count, dtype=torch.float64)
    return Data(rows, torch.from_numpy(rng.standard_normal((count, 1))), ones, ones, torch.zeros_like(ones))


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


def test_conditioning_on_rows_holds_few_matrices(process):
    data = data_of(process, OWN)
    with LiveBytes() as live:
        condition(process, data, data.z)
    assert live.peak < 3.5 * 8 * OWN**2


def test_predicting_many_rows_holds_a_few_at_a_time(process):
    own, new = data_of(process, OWN), data_of(process, ALL)
    posterior = condition(process, own, own.z)
    with LiveBytes() as live:
        posterior.mean(new.rows)
    assert live.peak < 1.5 * 8 * OWN * 2048


def test_rounding_many_terms_takes_slices_of_them():
    generator = torch.Generator().manual_seed(0)
    terms, width, sites = 4000, 32, 3
    factors = [torch.rand(terms, width, generator=generator, dtype=torch.float64) for _ in range(sites)]
    moments = [torch.eye(width, dtype=torch.float64) / width] * sites
    with LiveBytes() as live:
        round_products(torch.ones(terms, 1, dtype=torch.float64), factors, moments, 32, 0.0)
    held = 8 * terms * (sites * width + 3 * 42)  # whitened factors and sketches
    assert live.peak < held + 3 * 2**23
