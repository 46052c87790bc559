"""Orders and single terms against inclusion and exclusion over all coalitions."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from restt.explain import interaction, order_spectrum
from tests.explain import brute
from tests.explain.test_shapley import CASES, made


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_orders_are_sums_of_terms(case: str, centred: bool) -> None:
    module, x, background = made(case)
    means = background.mean(0) if centred else torch.zeros_like(background[0])
    sizes = brute.coalitions(module.sites).sum(1)
    expected = torch.zeros(len(x), module.sites + 1, module.outputs, dtype=torch.float64)
    for row, values in enumerate(x):
        expected[row].index_add_(0, sizes, brute.moebius(brute.game(module, values, means)))
    found = order_spectrum(module, x, background if centred else None)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.sum(1), brute.predictions(module, x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", ["runs", "ragged", "diagonal, ragged"])
def test_terms_are_those_of_inclusion_and_exclusion(case: str) -> None:
    module, x, background = made(case)
    terms = torch.stack([brute.moebius(brute.game(module, row, background.mean(0))) for row in x])
    for order in range(module.sites + 1):
        for sites in combinations(range(module.sites), order):
            expected = terms[:, sum(2**site for site in sites)]
            torch.testing.assert_close(interaction(module, x, sites, background), expected, rtol=1e-9, atol=1e-9)


def test_terms_add_up_to_the_prediction_with_and_without_a_background() -> None:
    module, x, background = made("ragged")
    subsets = [sites for order in range(7) for sites in combinations(range(6), order)]
    for given in (None, background):
        total = sum(interaction(module, x, sites, given) for sites in subsets)
        torch.testing.assert_close(total, brute.predictions(module, x), rtol=1e-10, atol=1e-10)


def test_max_order_gives_the_first_orders() -> None:
    module, x, background = made("runs")
    whole = order_spectrum(module, x, background)
    for highest in (1, 3, 6, 9):
        found = order_spectrum(module, x, background, max_order=highest)
        torch.testing.assert_close(found, whole[:, : highest + 1], rtol=1e-12, atol=1e-12)


def test_wrong_use_is_refused() -> None:
    module, x, background = made("ragged")
    with pytest.raises(ValueError, match="max_order must be at least 1, got 0"):
        order_spectrum(module, x, background, max_order=0)
    with pytest.raises(ValueError, match="sites must be in 0…5, got 6"):
        interaction(module, x, [0, 6])
    with pytest.raises(ValueError, match="sites must be distinct"):
        interaction(module, x, [1, 1])
    with pytest.raises(ValueError, match="sites has 'age', which is not one of"):
        interaction(module, x, ["age"])
    with pytest.raises(TypeError, match="sites must be columns by name or number"):
        interaction(module, x, [0.5])
