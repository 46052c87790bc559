"""Tables of columns of numbers: the C function and torch agree in values and gradients."""

from __future__ import annotations

import pytest
import torch

from restt.prior.kernel import Kernel
from restt.prior.sites import fit_sites, rows_of
from tests.chain.cpu.compiled import needs_compiler
from tests.prior.problems import random_problem


@needs_compiler
@pytest.mark.parametrize("seed", range(4))
def test_the_compiled_tables_are_those_of_torch(seed):
    columns = random_problem(seed, rows=40, numbers=3)[0].columns
    generator = torch.Generator().manual_seed(seed)
    parameters = torch.rand(9, 3, generator=generator, dtype=torch.float64) + 0.1
    parameters[7:] /= 1.1  # shares
    tables, slopes = [], []
    for function in (columns.tables, columns.in_torch):
        given = parameters.clone().requires_grad_()
        tables.append(function(given))
        weights = torch.randn(tables[0].shape, generator=generator.manual_seed(seed), dtype=torch.float64)
        (tables[-1] * weights).sum().backward()
        slopes.append(given.grad)
    torch.testing.assert_close(*tables, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(*slopes, rtol=1e-10, atol=1e-12)


def test_a_column_of_one_value_has_no_covariance():
    table = random_problem(0, rows=40)[1]
    table[:, 0] = 3.0
    weights = torch.ones(40, dtype=torch.float64)
    sites = fit_sites(table, weights.numpy(), [None, None, 4])
    columns = Kernel.measured(sites, rows_of(sites, table), weights, 1).columns
    given = torch.rand(9, 2, dtype=torch.float64).requires_grad_()
    first = columns.tables(given).view(2, columns.width, columns.width, 4)[0, 0, 0]
    torch.testing.assert_close(first.detach(), torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64))
    first.sum().backward()
    assert not given.grad.any()
