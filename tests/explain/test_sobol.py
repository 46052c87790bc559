"""Sobol indices against enumeration of discrete inputs, and against Monte Carlo within its error."""

from __future__ import annotations

from itertools import combinations, product

import pytest
import torch
from torch import Tensor

import restt
from restt.explain import sobol_indices
from tests.explain import brute

CASES = {
    "residual": {"sites": 5},
    "ragged": {"sites": 5, "width": [2, 1, 3, 2, 1]},
    "runs": {"sites": 4, "runs": 3},
    "one site": {"sites": 1},
    "diagonal": {"sites": 5, "products": 6},
    "diagonal, ragged": {"sites": 5, "width": [2, 1, 3, 2, 1], "products": 4, "runs": 1},
    "diagonal, one site": {"sites": 1, "products": 3},
    **{f"random {seed}": {"sites": 5, "topology": brute.random_topology(5, seed)} for seed in range(8)},
}


def enumerated(module: restt.ResTT, levels: Tensor) -> dict[tuple[int, ...], Tensor]:
    """The variance of every ANOVA term when each site takes its own levels (L, N, I) independently, by averaging."""
    sites, count = module.sites, len(levels)
    choices = torch.tensor(list(product(range(count), repeat=sites)))
    rows = levels[choices, torch.arange(sites)]
    values = brute.predictions(module, rows).reshape(*[count] * sites, module.outputs)
    terms: dict[tuple[int, ...], Tensor] = {}
    for order in range(sites + 1):
        for members in combinations(range(sites), order):
            others = [site for site in range(sites) if site not in members]
            mean = values.mean(dim=others, keepdim=True) if others else values
            for smaller, term in terms.items():
                if set(smaller) < set(members):
                    mean = mean - term
            terms[members] = mean
    return {members: term.square().flatten(0, -2).mean(0) for members, term in terms.items()}


@pytest.mark.parametrize("case", CASES)
def test_indices_are_those_of_all_combinations_of_levels(case: str) -> None:
    module = brute.random_module(**CASES[case])
    levels = brute.random_rows(module, 3, seed=1)
    variances = enumerated(module, levels)
    mean_square = variances.pop(())
    whole = sum(variances.values())
    found = sobol_indices(module, levels)
    close = {"rtol": 1e-9, "atol": 1e-10}
    torch.testing.assert_close(found.variance, whole, **close)
    torch.testing.assert_close(found.mean.square(), mean_square, **close)
    for n in range(module.sites):
        torch.testing.assert_close(found.first[n] * whole, variances[(n,)], **close)
        inside = sum(value for members, value in variances.items() if n in members)
        torch.testing.assert_close(found.total[n] * whole, inside, **close)
    for members in combinations(range(module.sites), 2):
        torch.testing.assert_close(found.pairs[members] * whole, variances[members], **close)
    for order in range(1, module.sites + 1):
        share = sum(value for members, value in variances.items() if len(members) == order)
        torch.testing.assert_close(found.by_order[order] * whole, share, **close)
    torch.testing.assert_close(found.by_order.sum(0), torch.ones_like(whole), **close)


def test_monte_carlo_agrees_within_its_error() -> None:
    module = brute.random_module(sites=12, width=2, bond=4, outputs=1)
    background = brute.random_rows(module, 40, seed=1, scale=0.7)
    found = sobol_indices(module, background)
    generator = torch.Generator().manual_seed(2)
    picks = torch.randint(len(background), (2, 20_000, 12), generator=generator)
    a, b = background[picks, torch.arange(12)]
    value = brute.predictions(module, a)[:, 0]
    squares = (value - value.mean()).square()
    assert abs(squares.mean() - found.variance[0]) < 4 * squares.std() / len(a) ** 0.5
    assert abs(value.mean() - found.mean[0]) < 4 * (value.var() / len(a)) ** 0.5
    for site in (0, 5, 11):  # total index: half the mean square change when only this site is drawn again
        other = a.clone()
        other[:, site] = b[:, site]
        change = (value - brute.predictions(module, other)[:, 0]).square() / 2
        gap = change.mean() / found.variance[0] - found.total[site, 0]
        assert abs(gap) < 4 * change.std() / len(a) ** 0.5 / found.variance[0]


def test_max_order_cuts_the_orders_only() -> None:
    module = brute.random_module(sites=6)
    rows = brute.random_rows(module, 9, seed=1)
    whole, some = sobol_indices(module, rows), sobol_indices(module, rows, max_order=2)
    torch.testing.assert_close(some.by_order, whole.by_order[:3])
    torch.testing.assert_close(some.variance, whole.variance)
    torch.testing.assert_close(some.total, whole.total)


def test_an_output_that_does_not_vary_has_no_shares() -> None:
    module = brute.random_module(sites=3)
    row = brute.random_rows(module, 1).repeat(4, 1, 1)
    found = sobol_indices(module, row)
    assert found.variance.abs().max() == 0
    assert found.total.abs().max() == 0


def test_tables_hold_the_numbers() -> None:
    module = brute.random_module(sites=3)
    found = sobol_indices(module, brute.random_rows(module, 9))
    frame = found.to_frame()
    assert list(frame.columns) == ["column", "output", "first", "total"]
    assert frame["total"].to_numpy() == pytest.approx(found.total.T.flatten().numpy())
    assert len(repr(found).splitlines()) == 6 + 3
    assert found._repr_html_().count("<tr>") == 6 + 1


def test_wrong_use_is_refused() -> None:
    module = brute.random_module(sites=3)
    rows = brute.random_rows(module, 9)
    with pytest.raises(ValueError, match="background must be given"):
        sobol_indices(module)
    with pytest.raises(ValueError, match="max_order must be at least 1"):
        sobol_indices(module, rows, max_order=0)
