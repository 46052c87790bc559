from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from restt.prior import coded, rounding
from restt.prior.coded import Coded, coded_products
from restt.prior.gp import Process, condition
from restt.prior.rounding import Sample, residual_module, round_products, train_values
from restt.prior.settings import Settings
from restt.testing import assert_multilinear
from tests.prior.problems import random_problem


def gram_rounding(coefficients, factors, moments, bond):
    """The reference: TT-SVD of a sum of products from its (J, J) Gram matrices, exactly."""
    roots = [torch.linalg.cholesky(m + 1e-6 / len(m) * torch.eye(len(m), dtype=torch.float64)) for m in moments]
    whitened = [f @ c for f, c in zip(factors, roots, strict=True)]
    grams = [coefficients @ coefficients.T]
    for factor in reversed(whitened[1:]):
        grams.append(grams[-1] * (factor @ factor.T))
    left, cores = torch.ones(1, len(coefficients), dtype=torch.float64), []
    for factor, root, gram in zip(whitened[:-1], roots[:-1], reversed(grams[1:]), strict=True):
        flat = (left[:, None, :] * factor.T[None]).reshape(-1, len(coefficients))
        kept = torch.linalg.eigh(flat @ gram @ flat.T)[1][:, -bond:]
        back = torch.linalg.inv(root).T
        cores.append(torch.einsum("rmk,im->rik", kept.reshape(len(left), factor.shape[1], -1), back))
        left = kept.T @ flat
    last = torch.einsum("rj,jm,jo->rmo", left, whitened[-1], coefficients)
    return [*cores, torch.einsum("rmk,im->rik", last, torch.linalg.inv(roots[-1]).T)]


def values(cores, states):
    y = torch.ones(len(states[0]), 1, dtype=torch.float64)
    for core, rows in zip(cores, states, strict=True):
        y = torch.einsum("br,bi,rik->bk", y, rows, core)
    return y


def independent_error(cores, coefficients, factors, moments):
    """The exact mean square of (train - sum) over independent sites, by enumeration of all states' products."""
    left = torch.cat([torch.ones(1, 1, dtype=torch.float64), torch.ones(1, len(coefficients), dtype=torch.float64)], 1)
    transfer = left.T @ left
    for n, (core, factor, moment) in enumerate(zip(cores, factors, moments, strict=True)):
        last = n == len(cores) - 1
        size = core.shape[2] + (coefficients.shape[1] if last else len(coefficients))
        joint = torch.zeros(core.shape[0] + len(coefficients), core.shape[1], size, dtype=torch.float64)
        joint[: core.shape[0], :, : core.shape[2]] = core
        for j in range(len(coefficients)):
            if last:
                joint[core.shape[0] + j, :, core.shape[2] :] = factor[j][:, None] * coefficients[j]
            else:
                joint[core.shape[0] + j, :, core.shape[2] + j] = factor[j]
        transfer = torch.einsum("ab,aim,bjn,ij->mn", transfer, joint, joint, moment)
    outputs = coefficients.shape[1]
    sign = torch.cat([torch.eye(outputs), -torch.eye(outputs)]).double()
    return (sign.T @ transfer @ sign).trace().item()


def problem(outputs: int = 1):
    """Products of a posterior with two numbers and a category, without its main effects."""
    kernel, _, data, theta = random_problem(0, rows=40, outputs=outputs)
    component = replace(Settings().components[0], terms=("smooth", "rough", "joint"))
    posterior = condition(Process(kernel, theta, component, Settings()), data, data.z)
    coefficients, factors = posterior.products()
    moments = [
        torch.diag(mean) if site.knots is None else moment
        for site, mean, moment in zip(kernel.sites, kernel.means, kernel.moments, strict=True)
    ]
    states = [posterior.rows.vectors(n, site.width) for n, site in enumerate(kernel.sites)]
    return posterior, coefficients, factors, moments, states


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_large_bond_is_the_exact_posterior(outputs):
    posterior, coefficients, factors, moments, states = problem(outputs=outputs)
    cores, record = round_products(coefficients, factors, moments, 40, 0.0)
    assert torch.allclose(values(cores, states), posterior.mean(posterior.rows), atol=1e-8)
    assert record.discarded < 1e-8


@pytest.mark.parametrize("bond", [1, 2, 3, 5])
def test_the_error_is_the_discarded_weight_and_near_the_best(bond):
    _, coefficients, factors, moments, _ = problem()
    cores, record = round_products(coefficients, factors, moments, bond, 0.0)
    assert record.bond_dim == bond
    error = independent_error(cores, coefficients, factors, moments) ** 0.5
    assert error == pytest.approx(record.discarded, rel=0.02)
    reference = gram_rounding(coefficients, factors, moments, bond)
    best = independent_error(reference, coefficients, factors, moments) ** 0.5
    assert error <= 1.1 * best


def test_the_tolerance_bounds_the_error_with_the_least_bonds():
    _, coefficients, factors, moments, _ = problem()
    size = independent_error([0 * f[:1, :, None] for f in factors], coefficients, factors, moments) ** 0.5
    wide, narrow = (round_products(coefficients, factors, moments, 30, t * size)[1] for t in (0.02, 0.3))
    assert wide.discarded <= 0.02 * size
    assert narrow.discarded <= 0.3 * size
    assert sum(narrow.bonds) < sum(wide.bonds)


def test_less_is_cut_away_where_it_is_too_much_on_the_rows():
    posterior, coefficients, factors, moments, states = problem()
    exact, tolerance, scale = posterior.mean(posterior.rows), 0.02, 3.0 ** len(states)
    # Rows of which everything is larger, since a train is linear in every site.
    sample = Sample([3 * x for x in states], scale * exact, torch.ones(len(exact), dtype=torch.float64))
    cores, before = round_products(coefficients, factors, moments, 30, tolerance)
    assert scale * (values(cores, states) - exact).square().mean().sqrt() > tolerance
    cores, after = round_products(coefficients, factors, moments, 30, tolerance, sample)
    distance = scale * (values(cores, states) - exact).square().mean().sqrt().item()
    assert after.distance == pytest.approx(distance, rel=1e-6)
    assert after.distance <= tolerance
    assert sum(before.bonds) < sum(after.bonds)
    assert after.discarded < before.discarded


def test_main_effects_are_a_train_beside_the_products():
    kernel, _, data, theta = random_problem(1, rows=30, outputs=2)
    posteriors = [
        condition(Process(kernel, theta + step, one, Settings()), data, data.z)
        for step, one in zip((0.0, 0.3), Settings().components, strict=False)
    ]
    weights, order = np.array([0.6, 0.4]), [2, 0, 1][: len(kernel.sites)]
    coefficients, factors = coded_products(posteriors, weights, order)
    moments = kernel.widened_moments(float(len(data.rows)))
    states = [kernel.vectors(data.rows)[n] for n in order]
    exact = 0.6 * posteriors[0].mean(data.rows) + 0.4 * posteriors[1].mean(data.rows)
    cores, _ = round_products(coefficients, factors, [moments[n] for n in order], 60, 0.0)
    torch.testing.assert_close(values(cores, states), exact, rtol=0, atol=1e-7)


@pytest.mark.parametrize("narrow", [0, 9])
def test_rows_between_two_lines_have_the_mean_of_both(narrow, monkeypatch):
    monkeypatch.setattr(coded, "_NARROW", narrow)  # by state, or row by row
    generator = torch.Generator().manual_seed(0)
    tables, core, left, right = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((2, 4, 3), (2, 3, 5), (2 * 6 + 1, 2), (2 * 6 + 1, 5))
    )
    code, share = torch.tensor([0, 0, 1, 2, 3, 3]), torch.tensor([0.25, 0, 0.5, 0.75, 0, 0]).double()
    site = Coded(code, share, tables, torch.zeros(3).double(), torch.zeros(0, 3).double())
    after = tables[:, [1, 0, 2, 3, 0, 0]]  # where the share is 0, any line will do
    factor = ((1 - share[:, None]) * tables[:, code] + share[:, None] * after).flatten(0, 1)
    found = site.contract(left, core, backward=False)[:-1]
    torch.testing.assert_close(found, torch.einsum("ja,ji,aib->jb", left[:-1], factor, core))
    found = site.outer(left, right)
    torch.testing.assert_close(found, torch.einsum("ja,ji,jb->aib", left[:-1], factor, right[:-1]))


def test_a_random_core_keeps_sizes_on_average_and_the_mean_factor_exactly():
    generator = torch.Generator().manual_seed(0)
    factor = torch.rand(9, 4, generator=generator, dtype=torch.float64)
    square = rounding._random(50, factor, 50, generator)
    middle = factor.mean(0) / factor.mean(0).norm()
    torch.testing.assert_close(torch.einsum("aib,i->ab", square, middle), torch.eye(50).double())
    other = middle.roll(1) - (middle.roll(1) @ middle) * middle
    for core, direction in ((square, other / other.norm()), (rounding._random(60, factor, 50, generator), middle)):
        squares = torch.einsum("aib,i->ab", core, direction).square().sum(1)
        assert squares.mean() == pytest.approx(1, abs=0.1)


def test_a_site_that_hardly_matters_costs_next_to_nothing(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    factors = [torch.rand(50, 30, generator=generator, dtype=torch.float64) for _ in range(8)]
    factors[2:6] = [1 + 1e-6 * factor for factor in factors[2:6]]
    coefficients = torch.randn(50, 1, generator=generator, dtype=torch.float64)
    moments, seen = [torch.full((30,), 1 / 30, dtype=torch.float64)] * 8, []
    states = [torch.eye(30, dtype=torch.float64)] * 8
    exact = torch.stack(factors).prod(0).T @ coefficients
    sample = Sample(states, exact, torch.ones(30, dtype=torch.float64))
    inner = rounding._compressed
    monkeypatch.setattr(rounding, "_compressed", lambda c, f, bond: seen.extend(f) or inner(c, f, bond))
    cores, record = round_products(coefficients, factors, moments, 50, 1e-2, sample, first_bonds=(2,))
    assert [factor.shape[1] for factor in seen[:8]] == [30] * 8
    assert [factor.shape[1] for factor in seen[8 + 2 : 8 + 6]] == [1] * 4
    assert seen[8 + 1].shape[1] > 4
    assert record.discarded <= 1e-2
    assert independent_error(cores, coefficients, factors, [torch.diag(m) for m in moments]) ** 0.5 <= 1.05e-2


@pytest.mark.parametrize("sites", [1, 2, 3, 5])
def test_any_train_on_vectors_that_sum_to_one_is_a_residual_one(sites):
    generator = torch.Generator().manual_seed(0)
    bonds = [*[1, 2, 4, 3, 2][:sites], 2]
    cores = [torch.randn(bonds[n], 2 + n, bonds[n + 1], generator=generator, dtype=torch.float64) for n in range(sites)]
    states = [torch.rand(7, 2 + n, generator=generator, dtype=torch.float64) for n in range(sites)]
    states = [x / x.sum(1, keepdim=True) for x in states]
    assert torch.allclose(train_values(cores, states), values(cores, states))
    module = residual_module(cores)
    assert module.bond_dim == max(bonds[:-1])
    x = torch.zeros(7, sites, 1 + sites, dtype=torch.float64)
    for n, rows in enumerate(states):
        x[:, n, : rows.shape[1]] = rows
    assert torch.allclose(module(x), values(cores, states))
    assert module.topology.name == "residual" or sites == 1
    assert_multilinear(module)
