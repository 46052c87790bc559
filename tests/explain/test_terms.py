"""The largest interactions against all 2^N of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import restt
from restt.explain import interaction, top_interactions
from restt.explain.dense import DenseTrain
from restt.explain.search import Search, _remaining_duals, search_terms
from restt.explain.subject import Subject
from tests.explain import brute
from tests.explain.test_sobol import enumerated


@pytest.mark.parametrize("max_order", [1, 2, 3, 4, None])
@pytest.mark.parametrize("products", [0, 5])
@pytest.mark.parametrize("seed", range(4))
def test_the_list_is_the_head_of_all_terms(seed: int, products: int, max_order: int | None) -> None:
    topology = brute.random_topology(6, seed) if seed else "residual"
    runs = 2 if seed == 1 and not products else None
    module = brute.random_module(6, topology=topology, runs=runs, seed=seed if products else 0, products=products)
    levels = brute.random_rows(module, 3, seed=1)
    variances = enumerated(module, levels)
    whole = sum(value for members, value in variances.items() if members)
    allowed = {
        members: value for members, value in variances.items() if 1 <= len(members) <= (max_order or module.sites)
    }
    ranked = sorted(allowed, key=lambda members: -float(allowed[members].sum()))[:12]
    found = top_interactions(module, levels, k=12, max_order=max_order)
    assert found.complete
    expected = torch.stack([allowed[members] for members in ranked])
    torch.testing.assert_close(torch.stack([term.variance for term in found.terms]), expected, rtol=1e-8, atol=1e-10)
    for term in found.terms:
        torch.testing.assert_close(term.variance, allowed[term.columns], rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(term.share, term.variance / whole, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("products", [0, 9])
def test_a_search_cut_short_says_so_and_its_bound_holds(products: int) -> None:
    module = brute.random_module(sites=8, bond=4, outputs=1, products=products)
    levels = brute.random_rows(module, 3, seed=1)
    whole = top_interactions(module, levels, k=30)
    cut = top_interactions(module, levels, k=30, nodes=3)
    assert whole.complete
    assert not cut.complete
    listed = {term.columns for term in cut.terms}
    missed = [float(term.variance.sum()) for term in whole.terms if term.columns not in listed]
    assert missed
    assert cut.bound >= max(missed)
    assert all(len(term.columns) >= 3 for term in whole.terms if term.columns not in listed)


def test_a_term_has_the_variance_of_its_values() -> None:
    module = brute.random_module(sites=4)
    rows = brute.random_rows(module, 5, seed=3)
    grid = torch.stack(
        [rows[list(choice), range(4)] for choice in torch.cartesian_prod(*[torch.arange(5)] * 4).tolist()]
    )
    for term in top_interactions(module, rows, k=15).terms:
        values = interaction(module, grid, term.columns, rows)
        torch.testing.assert_close(values.square().mean(0), term.variance, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(values.mean(0), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-10)


@pytest.mark.parametrize("max_order", [5, 6, None])
def test_a_single_term_of_high_order_is_found(max_order: int | None) -> None:
    topology = (
        restt.Topology.residual(6).without_linear(*range(2, 7)).without_skip(*range(2, 6))
    )  # only {0 … 4} and {0 … 5}
    module = brute.random_module(sites=6, width=1, bond=1, outputs=1, topology=topology)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(1.0)
        module.last_chain.fill_(0.5)
    signs = torch.tensor([-1.0, 1.0], dtype=torch.float64)[:, None, None].expand(2, 6, 1)
    found = top_interactions(module, signs, k=2, max_order=max_order)
    assert found.complete
    assert found[0].columns == (0, 1, 2, 3, 4)
    assert float(found[0].variance) == pytest.approx(1.0)
    if max_order != 5:
        assert found[1].columns == (0, 1, 2, 3, 4, 5)
        assert float(found[1].variance) == pytest.approx(0.25)


def searched(kind: str, sizes: dict[tuple[int, ...], float], k: int, nodes: int = 1000) -> Search:
    """A search among the terms of Σ_T size_T Π_{n in T} x_n over independent signs: T has the variance size_T²."""
    sites = 1 + max(n for members in sizes for n in members)
    factors = torch.eye(2, dtype=torch.float64)[None]  # of [1, x]: x at a site of the term, else 1
    code = torch.tensor([[int(n in members) for n in range(sites)] for members in sizes])
    weights = torch.tensor(list(sizes.values()), dtype=torch.float64)[None, :, None]
    module = restt.DiagonalTT([factors] * sites, code, torch.zeros_like(code).double(), weights)
    signs = torch.tensor([[1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)[:, None].expand(-1, sites, -1)
    subject = Subject.of(module)
    means, covariances = subject.moments(signs)
    train = DenseTrain(subject.cores(), means) if kind == "dense" else subject.train(means)
    return search_terms(train.moments(covariances), sites, k, nodes)


@pytest.mark.parametrize("kind", ["dense", "diagonal"])
def test_the_proof_tells_terms_apart_but_not_rounding(kind: str) -> None:
    # Larger by 1e-11 than the second of the terms known before, which is ten times the slack of the proof.
    close = searched(kind, {(0,): 1.0, (1,): 0.5, (1, 2, 3): 0.5 * (1 + 1e-11)}, k=2)
    assert close.complete
    assert close.best[1] > 0.25
    assert max(close.variances, key=lambda members: float(close.variances[members]) * (len(members) > 1)) == (1, 2, 3)
    # Nothing is left but rounding: no set is looked at.
    nothing = searched(kind, {(0,): 0.7, (1,): 0.3, (0, 2): 0.9, (1, 3): 0.1}, k=5)
    assert nothing.complete
    assert nothing.nodes == 0
    # A node whose bound is that of the k-th term is not opened: one path along four sites, one set.
    tie = searched(kind, {(0, 1, 2): 0.3, (0, 1, 3): 0.3}, k=1)
    assert tie.complete
    assert tie.nodes == (4 if kind == "dense" else 1)
    # As many nodes as are allowed are opened, and no more.
    cut = searched(kind, {(0, 1, 2): 0.3, (0, 1, 3): 0.3}, k=1, nodes=tie.nodes - 1)
    assert (cut.complete, cut.nodes) == (False, tie.nodes - 1)
    assert cut.bound == pytest.approx(0.09 if kind == "dense" else 0.18)
    assert searched(kind, {(0, 1, 2): 0.3, (0, 1, 3): 0.3}, k=1, nodes=tie.nodes).complete


@pytest.mark.parametrize("highest", [3, 4, 5])
def test_what_may_follow_has_the_variance_of_all_admissible_orders(highest: int) -> None:
    module = brute.random_module(sites=5, bond=3, outputs=2)
    subject = Subject.of(module)
    means, covariances = subject.moments(brute.random_rows(module, 9))
    moments = DenseTrain(subject.cores(), means).moments(covariances)
    orders = moments.variances(5)[2].sum(1)
    orders[0] = subject.decide(means[None]).square().sum()  # what follows may be nothing
    duals = _remaining_duals(moments, highest)[0][:, 0, 0]
    ends = [6] * 4 if highest == 5 else [highest - chosen + 1 for chosen in range(highest + 1)]
    expected = [orders[max(0, 3 - chosen) : end].sum() for chosen, end in enumerate(ends)]
    torch.testing.assert_close(duals, torch.stack(expected))


@pytest.mark.parametrize("kind", ["dense", "diagonal"])
@pytest.mark.parametrize("size", [0.01, 0.0])
def test_small_terms_are_listed_where_there_is_room(kind: str, size: float) -> None:
    found = searched(kind, {(0,): 1.0, (0, 1, 2): size}, k=7)
    assert found.complete
    assert len(found.variances) == 7
    assert float(found.variances[0, 1, 2]) == pytest.approx(size**2)


@pytest.mark.parametrize("kind", ["dense", "diagonal"])
@pytest.mark.parametrize("unit", [1.0, 1e8])
def test_as_many_terms_are_listed_in_every_unit(kind: str, unit: float) -> None:
    assert len(searched(kind, {(0, 1, 2): unit, (0, 3): unit}, k=15).variances) == 15


def test_fewer_terms_than_asked_for() -> None:
    module = brute.random_module(sites=2)
    found = top_interactions(module, brute.random_rows(module, 5), k=10)
    assert sorted(term.columns for term in found.terms) == [(0,), (0, 1), (1,)]
    assert found.complete


def test_tables_hold_the_terms() -> None:
    module = brute.random_module(sites=4)
    found = top_interactions(module, brute.random_rows(module, 5), k=4)
    frame = found.to_frame()
    assert frame["term"].tolist() == [term.label for term in found.terms]
    assert frame["variance"].is_monotonic_decreasing
    assert repr(found).endswith("proven complete")
    assert frame["order"].tolist() == [len(term.columns) for term in found.terms]
    assert frame["variance"].tolist() == [float(term.variance.sum()) for term in found.terms]
    for output in (0, 1):
        assert frame[f"share of output {output}"].tolist() == [float(term.share[output]) for term in found.terms]
    assert repr(replace(found, complete=False, bound=0.012345)).endswith(
        "not proven: an unseen term has at most 0.0123"
    )
    one = top_interactions(brute.random_module(2, outputs=1), brute.random_rows(brute.random_module(2), 5), k=2)
    assert list(one.to_frame().columns) == ["term", "order", "variance", "share"]


def test_wrong_use_is_refused() -> None:
    module = brute.random_module(sites=3)
    rows = brute.random_rows(module, 5)
    with pytest.raises(ValueError, match="background must be given"):
        top_interactions(module)
    with pytest.raises(ValueError, match="k must be at least 1"):
        top_interactions(module, rows, k=0)
    with pytest.raises(ValueError, match="nodes must be at least 1, got 0"):
        top_interactions(module, rows, nodes=0)
    with pytest.raises(ValueError, match="max_order must be at least 1, got 0"):
        top_interactions(module, rows, max_order=0)
    with pytest.raises(ValueError, match="max_order must be at most 3, got 4"):
        top_interactions(module, rows, max_order=4)
