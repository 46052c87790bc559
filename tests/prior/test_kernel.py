"""The covariance function: centred, of unit size, positive, and the same however a column is written."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from restt.prior import Settings
from restt.prior.gp import Process, term_mask
from restt.prior.kernel import Kernel, Prior, relevance_of
from restt.prior.pairs import covariance
from restt.prior.settings import GLOBAL, LEVELS, NUMBER, TERMS, Layout, log_prior
from restt.prior.sites import fit_sites, rows_of
from tests.prior.problems import random_problem

FULL = Settings().components[0]


def unit_tables(kernel: Kernel, theta: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Tables of the smooth and the rough kernel of every column, out of the factors 1 + a k of the two products."""
    h, (tables, _) = kernel.layout.split(theta), kernel.tables_with_average(theta)
    found = []
    for n, table in enumerate(tables):
        kind, places = ("number", kernel.numbers) if n in kernel.numbers else ("level", kernel.categories)
        k = places.index(n)
        sizes = [torch.exp(h[q] + h[f"{kind}.relevance"][k] + h[f"{kind}.{q}"][k]) for q in ("a", "j")]
        found.append(((table[..., 0] - 1) / sizes[0], (table[..., 1] - 1) / sizes[1]))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_columns_are_centred_under_the_rows_with_a_mean_variance_of_1(seed):
    kernel, _, data, theta = random_problem(seed, rows=40, numbers=2, categories=2)
    share = data.weights / data.weights.sum()
    for n, units in enumerate(unit_tables(kernel, theta)):
        for table in units:
            vectors = data.rows.vectors(n, len(table))
            gram = vectors @ table @ vectors.T
            torch.testing.assert_close(share @ gram, torch.zeros_like(share), atol=1e-12, rtol=0)
            assert float(share @ gram.diagonal()) == pytest.approx(1)


def test_the_sum_is_of_the_same_kernels_with_sizes_of_its_own():
    kernel, _, _, theta = random_problem(3, rows=40)
    h = kernel.layout.split(theta)
    tables = kernel.tables_with_average(theta)[0]
    for n, (smooth, rough) in enumerate(unit_tables(kernel, theta)):
        kind, k = ("number", n) if n in kernel.numbers else ("level", 0)
        b, r = (torch.exp(h[q] + h[f"{kind}.relevance"][k] + h[f"{kind}.{q}"][k]) for q in ("b", "r"))
        torch.testing.assert_close(tables[n][..., 3], b * smooth + r * rough, rtol=1e-10, atol=1e-12)


def test_two_levels_are_one_length_apart_in_the_joint_term():
    kernel, _, _, theta = random_problem(3, rows=40)
    h, place = kernel.layout.split(theta), kernel.categories[0]
    table = kernel.tables(theta)[0].split()[place][..., 2]
    w = torch.exp(h["w"] + h["level.relevance"][0] + h["level.w"][0])
    eye = torch.eye(len(table)).double()
    torch.testing.assert_close(table, eye + (1 - eye) * torch.exp(-w / 2))


@pytest.mark.parametrize("seed", range(6))
def test_the_covariance_is_symmetric_and_positive(seed):
    kernel, _, data, theta = random_problem(seed, rows=60, numbers=3, categories=2)
    # Each table, too: a missing value has a place among the knots of its column.
    for table in kernel.tables_with_average(theta)[0]:
        values = torch.linalg.eigvalsh(table.permute(2, 0, 1))
        assert (values[:, 0] > -1e-12 * values[:, -1]).all()
    for component in Settings().components:
        matrix = Process(kernel, theta, component, Settings()).covariance(data.rows)
        assert torch.equal(matrix, matrix.T)
        assert torch.linalg.eigvalsh(matrix).min() > -1e-9 * matrix.diagonal().max()


def test_the_average_state_is_the_mean_over_the_rows():
    kernel, _, data, theta = random_problem(0, rows=30)
    share = data.weights / data.weights.sum()
    for n, table in enumerate(kernel.tables_with_average(theta)[0]):
        mean = share @ data.rows.vectors(n, len(table) - 1)
        torch.testing.assert_close(table[-1, :-1], torch.einsum("i,ijk->jk", mean, table[:-1, :-1]))
        torch.testing.assert_close(table[-1, -1], torch.einsum("i,ijk,j->k", mean, table[:-1, :-1], mean))


def test_tables_without_the_average_are_the_same():
    kernel, _, _, theta = random_problem(0, rows=30, numbers=2, categories=2)
    whole, scale = kernel.tables_with_average(theta)
    tables, plain_scale = kernel.tables(theta)
    for table, padded in zip(whole, tables.split(), strict=True):
        plain = padded[: len(table) - 1, : len(table) - 1]
        assert torch.equal(table[:-1, :-1], plain)
    assert torch.equal(plain_scale, scale)


def own_covariance(column: np.ndarray, theta: torch.Tensor | None = None) -> torch.Tensor:
    numbers = np.column_stack([column, np.arange(len(column)) % 7])
    sites = fit_sites(numbers, np.ones(len(column)), beyond=True)
    rows = rows_of(sites, numbers)
    kernel = Kernel.measured(sites, rows, torch.ones(len(column), dtype=torch.float64), 1)
    at = theta if theta is not None else kernel.layout.densities(FULL.densities, rows.share)[0]
    tables, scale = kernel.tables(at)
    return covariance(tables, scale, rows)


@pytest.mark.parametrize("change", [lambda x: -x, lambda x: 1e6 * x, lambda x: x + 1000, lambda x: 3 - 1e-5 * x])
@pytest.mark.parametrize("distinct", [20, 100])
def test_the_unit_the_zero_and_the_sign_of_a_column_do_not_matter(change, distinct):
    rng = np.random.default_rng(0)
    column = rng.lognormal(size=distinct)[rng.integers(0, distinct, 100)]
    column[:5] = np.nan
    torch.testing.assert_close(own_covariance(change(column)), own_covariance(column), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("column", [np.full(30, 7.0), np.full(30, np.nan)])
def test_a_column_of_one_value_contributes_nothing(column):
    rng = np.random.default_rng(0)
    numbers = np.column_stack([rng.standard_normal(30), column])
    sites = fit_sites(numbers, np.ones(30), beyond=True)
    kernel = Kernel.measured(sites, rows_of(sites, numbers), torch.ones(30, dtype=torch.float64), 1)
    theta = kernel.layout.densities(FULL.densities, kernel.means[0])[0]
    table = kernel.tables_with_average(theta)[0][1]
    relevance = relevance_of(Process(kernel, theta, FULL, Settings()))
    assert relevance[0] > 0
    assert relevance[1] == 0
    # Of a column with no values, the knot that no row is at may be as it likes.
    seen = [len(table) - 2, len(table) - 1]
    part = table[seen][:, seen]
    torch.testing.assert_close(part[..., :3], torch.ones_like(part[..., :3]), rtol=1e-14, atol=0)
    assert part[..., 3].abs().max() < 1e-14


def test_a_category_of_one_level_contributes_nothing():
    numbers = np.zeros((30, 1))
    sites = fit_sites(numbers, np.ones(30), [1])
    kernel = Kernel.measured(sites, rows_of(sites, numbers), torch.ones(30, dtype=torch.float64), 1)
    theta = kernel.layout.densities(FULL.densities, kernel.means[0])[0]
    table = kernel.tables_with_average(theta)[0][0]
    torch.testing.assert_close(table[..., :3], torch.ones(2, 2, 3, dtype=torch.float64), rtol=1e-14, atol=0)
    assert table[..., 3].abs().max() < 1e-14


def test_rough_functions_differ_more_between_neighbours():
    kernel, _, _, theta = random_problem(1, rows=60, categories=0)
    h = kernel.layout.split(theta)
    for name in ("number.length", "number.rough_length"):
        h[name][:] = 0.5
    h["number.line"][:] = -30
    smooth, rough = unit_tables(kernel, theta)[1]
    apart = [float(table[1, 1] + table[2, 2] - 2 * table[1, 2]) for table in (smooth, rough)]
    assert apart[1] > 1.5 * apart[0] > 0
    h["number.line"][:] = 30
    straight = unit_tables(kernel, theta)[1][0][:-1, :-1]
    assert torch.linalg.matrix_rank(straight, rtol=1e-9) == 1


def test_moments_with_a_new_row_and_kernels_with_more_levels():
    kernel, _, _, _ = random_problem(0, rows=30, numbers=2, categories=1)
    assert [site.beyond for site in kernel.sites] == [(1, 1), (1, 1), (0, 0)]
    *numbers, levels = kernel.widened_moments(9.0)
    for n, (found, moment) in enumerate(zip(numbers, kernel.moments[:2], strict=True)):
        added = torch.zeros_like(moment)
        added[0, 0] = added[len(kernel.sites[n].knots) - 1, len(kernel.sites[n].knots) - 1] = 0.1
        torch.testing.assert_close(found, moment + added, rtol=0, atol=1e-15)
    assert torch.equal(levels, kernel.means[2])
    more = kernel.with_levels([(0, 0), (0, 0), (4, 2)])
    assert [site.width for site in more.sites] == [
        *(site.width for site in kernel.sites[:2]),
        kernel.sites[2].width + 2,
    ]
    assert more.means[2].tolist() == [*kernel.means[2][:4].tolist(), 0, 0, *kernel.means[2][4:].tolist()]


def test_a_prior_is_printed_with_its_noise_lengths_and_lines():
    made = Prior(
        names=("a long name", "b"),
        relevance=np.array([0.25, 1234.5]),
        length=np.array([0.5, np.nan]),
        line=np.array([0.125, np.nan]),
        noise=0.0123,
        power=np.array([1.0, 0.5]),
        degrees=50.0,
        members={"full": 0.75, "rough": 0.25},
    )
    assert str(made).splitlines() == [
        "Prior: noise 0.0123 (Student's t, 50.0 degrees of freedom), power of y 1.00, 0.50; "
        "average of full 0.75, rough 0.25",
        "  column       relevance  length  line",
        "  a long name       0.25     0.5  0.12",
        "  b             1.23e+03       –     –",
    ]
    short = str(replace(made, degrees=50.1, names=("a", "b"))).splitlines()
    assert "(normal)" in short[0]
    assert short[1] == "  column  relevance  length  line"
    pytest.importorskip("matplotlib")
    axes = made.plot()
    assert axes.figure.get_size_inches().tolist() == pytest.approx([6, 1.6])
    assert ([bar.get_width() for bar in axes.patches], axes.get_xscale()) == ([0.25, 1234.5], "log")


def test_noise_features_are_standardised_values_that_end():
    numbers = np.column_stack([np.r_[np.linspace(-1, 1, 39), 1e6], np.r_[np.nan, np.linspace(0, 5, 39)]])
    sites = fit_sites(numbers, np.ones(40), beyond=True)
    rows = rows_of(sites, numbers)
    features = Kernel.measured(sites, rows, torch.ones(40, dtype=torch.float64), 1).noise_features(rows)
    assert features.abs().max() <= 2.5
    assert features[39, 0] == features[:, 0].max()
    assert features[0, 1] == 0
    assert float(features[1:, 1].mean()) == pytest.approx(0, abs=1e-6)


def test_every_hyper_parameter_has_one_place_and_a_density_in_every_component():
    layout = Layout(3, 2, 2)
    theta = torch.arange(float(len(layout.names)))
    parts = layout.split(theta)
    assert len(theta) == len(GLOBAL) + 2 + 3 * len(NUMBER) + 2 * len(LEVELS)
    assert sorted(torch.cat([part.reshape(-1) for part in parts.values()]).tolist()) == theta.tolist()
    for name, part in parts.items():
        assert [layout.names[int(place)] for place in part.reshape(-1)] == [name] * part.numel()
    for component in Settings().components:
        centre, scale, degrees = layout.densities(component.densities, theta.double())
        assert centre.isfinite().all()
        assert (scale > 0).all()
        assert (degrees > 0).all()
        assert component.weight > 0
        mask = term_mask(component, theta)
        assert [name for name, on in zip(TERMS, mask, strict=True) if on] == list(component.terms)


def test_columns_of_one_value_are_not_counted_among_those_that_vary():
    given = ((1, 0, 1, 0), (0, 1, 1, 0), (2, 3, 1, 1), (1, 1, 1, 2))
    assert [Layout(*one).varying for one in given] == [1, 1, 4, 1]


def test_densities_of_hyper_parameters_are_normal_and_students():
    at = torch.linspace(-3, 5, 5, dtype=torch.float64).requires_grad_()
    centre, scale = torch.full((5,), 0.5).double(), torch.full((5,), 1.7).double()
    for degrees, density in (
        (float("inf"), torch.distributions.Normal(0.5, 1.7)),
        (4.0, torch.distributions.StudentT(4.0, 0.5, 1.7)),
    ):
        found = torch.autograd.grad(log_prior(at, centre, scale, torch.full((5,), degrees)), at)[0]
        torch.testing.assert_close(found, torch.autograd.grad(density.log_prob(at).sum(), at)[0])
