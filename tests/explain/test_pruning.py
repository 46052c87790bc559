"""Smaller models cost exactly what they say."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

import restt
from restt.explain import prune
from restt.explain.pruning import Original, _moments, as_residual, distance, rounded, without
from restt.explain.subject import Subject
from tests.explain import brute

CASES = {
    "residual": {"sites": 4, "bond": 6},
    "runs": {"sites": 4, "bond": 4, "runs": 3, "width": 1},
    "two sites": {"sites": 2, "bond": 5},
    "ragged": {"sites": 4, "bond": 6, "width": [2, 1, 3, 2]},
    "diagonal": {"sites": 4, "products": 6},
    "diagonal, ragged": {"sites": 4, "products": 4, "width": [2, 1, 3, 2], "runs": 1},
    **{f"random {seed}": {"sites": 4, "bond": 5, "topology": brute.random_topology(4, seed)} for seed in range(6)},
}


def rms(
    module: restt.ResTT | restt.DiagonalTT, other: restt.ResTT, levels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The difference over all combinations of levels, and the outputs' spread over them."""
    choices = torch.tensor(list(product(range(len(levels)), repeat=module.sites)))
    rows = levels[choices, torch.arange(module.sites)]
    ours, theirs = brute.predictions(module, rows), brute.predictions(other, rows)
    return (ours - theirs).square().mean(0).sqrt(), ours.var(0, correction=0).sum().sqrt()


@pytest.mark.parametrize("way", ["bond", "topology", "auto"])
@pytest.mark.parametrize("case", CASES)
def test_the_error_is_that_of_all_combinations_of_levels(case: str, way: str) -> None:
    module = brute.random_module(**CASES[case])
    levels = brute.random_rows(module, 4, seed=1, scale=0.5)
    for tolerance in (1e-6, 0.05, 0.4):
        found = prune(module, tolerance, levels, way=way)
        errors, spread = rms(module, found.module, levels)
        torch.testing.assert_close(found.error_by_output, errors, rtol=1e-6, atol=1e-9)
        assert found.error == pytest.approx(float(errors.norm() / spread), rel=1e-6, abs=1e-9)
        assert found.error <= tolerance
        assert found.parameters == found.module.num_parameters() * (found.module.runs or 1)
        assert found.parameters <= found.parameters_before
    if case in ("residual", "runs", "ragged"):
        assert found.way != "none"
        assert found.parameters < found.parameters_before


def test_a_train_that_rounding_would_spoil_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    # Lost directions come back too small to divide by.
    monkeypatch.setattr("restt.explain.pruning.FLOORS", (2.5e-6,))
    module = brute.random_module(**CASES["random 0"])
    levels = brute.random_rows(module, 4, seed=1, scale=0.5)
    found = prune(module, 0.4, levels, way="bond")
    errors, _ = rms(module, found.module, levels)
    torch.testing.assert_close(found.error_by_output, errors, rtol=1e-2, atol=1e-4)


def test_a_bond_that_is_too_large_is_found_out() -> None:
    small, large = brute.random_module(sites=7, bond=2), brute.random_module(sites=7, bond=9)
    with torch.no_grad():
        for ours, theirs in zip(large.parameters(), small.parameters(), strict=True):
            ours.zero_()[tuple(slice(0, width) for width in theirs.shape)] = theirs
    found = prune(large, 1e-8, brute.random_rows(large, 30, scale=0.5), way="bond")
    assert found.module.bond_dim == 3
    assert found.error < 1e-8
    x = brute.random_rows(large, 5, seed=4)
    torch.testing.assert_close(found.module(x), large(x), rtol=1e-5, atol=1e-5)


def test_connections_that_do_nothing_are_dropped() -> None:
    module = brute.random_module(sites=6)
    with torch.no_grad():
        module.chain[1].zero_()
        module.linear[1].zero_()
        module.linear[3].zero_()
    found = prune(module, 1e-9, brute.random_rows(module, 20), way="topology")
    assert set(found.dropped) == {(2, "chain"), (2, "linear"), (4, "linear")}
    assert found.module.topology.dead_sites() == (3,)
    assert found.error < 1e-12


@torch.no_grad()
def test_connections_are_ranked_by_the_exact_cost_of_each() -> None:
    module = brute.random_module(**CASES["ragged"])
    levels = brute.random_rows(module, 4, seed=1, scale=0.5)
    subject = Subject.of(module)
    costs = Original(subject.module, *subject.moments(levels), tolerance=0.4).costs()
    assert {drop for _, drop in costs} == {(site, kind) for site in (1, 2, 3) for kind in ("chain", "linear", "skip")}
    for cost, drop in costs:
        errors, _ = rms(module, without(module, [drop]), levels)
        assert cost == pytest.approx(float(errors.square().sum()), rel=1e-8)
    fewer = without(subject.module, [(2, "chain"), (1, "linear"), (2, "skip"), (3, "skip")])
    left = {drop for _, drop in Original(fewer, *subject.moments(levels), tolerance=0.4).costs()}
    assert {drop for _, drop in costs} - left == {(2, "chain"), (1, "linear"), (2, "skip"), (3, "skip")}
    # The list that is dropped goes as far as the tolerance allows, neither less nor more.
    ranked = [drop for _, drop in sorted(costs)]
    dropped = prune(module, 0.4, levels, way="topology").dropped
    assert dropped == tuple(ranked[: len(dropped)])
    for count, fits in ((len(dropped), True), (len(dropped) + 1, False)):
        errors, spread = rms(module, without(module, ranked[:count]), levels)
        assert (float(errors.norm() / spread) <= 0.4) is fits
    assert len(prune(module, 1e3, levels, way="topology").dropped) == len(ranked)


def test_a_product_has_the_bond_one_and_nothing_as_large_is_offered() -> None:
    module = brute.random_module(sites=4, bond=3, outputs=1, topology="plain")
    with torch.no_grad():
        module.first[:, 1:] = 0.0
        module.chain[..., 1:] = 0.0
        module.bias.zero_()
    levels = brute.random_rows(module, 5, seed=1)
    found = prune(module, 1e-6, levels, way="bond")
    assert found.module.bond_dim == 1
    assert prune(found.module, 1e-6, levels, way="bond").way == "none"


def test_a_train_of_two_sites_has_the_bond_of_its_matrix() -> None:
    module = brute.random_module(sites=2, bond=9, outputs=2, width=2)
    found = prune(module, 1e-8, brute.random_rows(module, 20), way="bond")
    assert (found.way, found.module.bond_dim) == ("bond", 3)


def test_members_become_one() -> None:
    module = brute.random_module(sites=5, bond=3, runs=4)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter[1:] = parameter[:1]
    found = prune(module, 1e-8, brute.random_rows(module, 20), way="bond")
    assert found.module.runs == 1
    assert found.module.bond_dim == 4
    assert found.parameters < found.parameters_before


def test_without_a_background_the_modules_own_moments_count() -> None:
    module = restt.ResTT(5, 2, 8, 1, second_moment=[1.0, 0.5, 1.0, 2.0, 1.0], dtype=torch.float64)
    found = prune(module, 0.2)
    generator = torch.Generator().manual_seed(0)
    deviation = (torch.tensor([1.0, 0.5, 1.0, 2.0, 1.0], dtype=torch.float64) / 2).sqrt()[:, None]
    x = deviation * torch.randn(50_000, 5, 2, generator=generator, dtype=torch.float64)
    squares = (found.module(x) - module(x)).square().detach()
    assert found.error_by_output.square().item() == pytest.approx(
        float(squares.mean()), abs=4 * float(squares.std()) / 50_000**0.5
    )


def test_where_nothing_can_go_the_model_comes_back() -> None:
    module = brute.random_module(sites=1)
    found = prune(module, 0.01, brute.random_rows(module, 9))
    assert found.module is module
    assert found.way == "none"
    assert found.error == 0


def test_a_float32_module_stays_one_and_is_trainable() -> None:
    module = brute.random_module(sites=5, bond=6).float()
    found = prune(module, 0.5, brute.random_rows(module, 9).float())
    assert found.module.first.dtype == torch.float32
    assert found.module.first.requires_grad


def test_an_error_as_large_as_the_tolerance_is_accepted() -> None:
    module = brute.random_module(sites=3, outputs=2)
    original = Original(module, *_moments(Subject.of(module), brute.random_rows(module, 9)), 0.5)
    spread = float(sum(original.moments.variance)) ** 0.5
    errors = torch.tensor([0.3, 0.4], dtype=torch.float64) * spread
    sizes = (1 - 1e-9, 1 + 1e-9, math.inf, math.nan)
    assert [original.accepts(size * errors) for size in sizes] == [True, False, False, False]
    assert original.accepts(original.spread / 2)


def test_wrong_use_is_refused() -> None:
    module = brute.random_module(sites=3)
    with pytest.raises(ValueError, match="tolerance must be finite and above 0, got -1"):
        prune(module, -1)
    with pytest.raises(ValueError, match="way must be one of"):
        prune(module, 0.1, way="svd")
    with pytest.raises(ValueError, match="model must vary over the background"):
        prune(module, 0.1, brute.random_rows(module, 1))


def train(bonds: list[int], width: int, seed: int = 0) -> list[torch.Tensor]:
    """Random cores (left, 1 + width, right) from bond 1 on."""
    generator = torch.Generator().manual_seed(seed)
    sides = zip([1, *bonds[:-1]], bonds, strict=True)
    return [torch.randn(left, 1 + width, right, generator=generator, dtype=torch.float64) for left, right in sides]


def tensor(cores: list[torch.Tensor]) -> torch.Tensor:  # (products of entries, outputs)
    state = torch.ones(1, 1, dtype=torch.float64)
    for core in cores:
        state = torch.einsum("pl,lir->pir", state, core).flatten(0, 1)
    return state


def test_distances_of_trains_are_those_of_their_tensors() -> None:
    ours, theirs = train([2, 4, 2], 2), train([3, 1, 2], 2, seed=1)
    torch.testing.assert_close(distance(ours, theirs), (tensor(ours) - tensor(theirs)).norm(dim=0))
    assert float(distance(ours, ours).max()) < 1e-12


def test_rounding_loses_what_lies_beyond_the_largest_singular_values() -> None:
    pair = train([5, 1], 5)
    lost = torch.linalg.svdvals(tensor(pair).reshape(6, 6))
    for bond in (1, 2, 4, 5):
        smaller = rounded(pair, bond)
        assert smaller[0].shape == (1, 6, bond)
        torch.testing.assert_close(distance(pair, smaller)[0], lost[bond:].norm())
    chain = train([2, 8, 3, 2], 2)
    same = rounded(chain, 8)
    assert [core.shape[-1] for core in same] == [2, 6, 3, 2]  # no more than the tensor needs
    torch.testing.assert_close(tensor(same), tensor(chain))
    assert [core.shape[-1] for core in rounded(chain, 2)] == [2, 2, 2, 2]


def test_a_train_is_written_as_a_residual_one() -> None:
    like = brute.random_module(sites=4, width=2, bond=3)
    chain = train([2, 3, 2, 2], 2)
    module = as_residual(chain, like, 1e-12)
    assert (module.bond_dim, module.topology.name) == (3, "residual")
    x = brute.random_rows(like, 6)
    products = torch.ones(6, 1, dtype=torch.float64)
    for site in x.unbind(1):
        products = (products[:, :, None] * torch.cat([torch.ones(6, 1), site], 1)[:, None]).flatten(1)
    torch.testing.assert_close(brute.predictions(module, x), products @ tensor(chain), rtol=1e-6, atol=1e-6)
