import dataclasses
import json
import pickle
import time

import pytest
import torch
from hypothesis import given, settings

from restt import Topology
from tests.expansion import generic_module, subsets, term_by_path, terms_by_inclusion_exclusion
from tests.strategies import every_topology, topologies


def assert_agrees_with_brute_force(topology):
    module = generic_module(topology)
    x = torch.linspace(0.7, 1.3, topology.sites, dtype=torch.float64)[:, None]
    terms = terms_by_inclusion_exclusion(module, x)
    # Every path's product is at least 0.5^(2N) here; rounding of the alternating sums is far below.
    present = {members for members, value in terms.items() if value.abs().max() > 1e-9}
    assert {members for members in subsets(topology.sites) if topology.contains(members)} == present
    assert topology.count_terms() == len(present)
    by_order = [sum(len(members) == order for members in present) for order in range(topology.sites + 2)]
    assert [topology.count_terms(order) for order in range(topology.sites + 2)] == by_order
    assert topology.orders() == tuple(order for order, count in enumerate(by_order) if count)
    alive = {site for members in present for site in members}
    assert topology.dead_sites() == tuple(site for site in range(1, topology.sites + 1) if site not in alive)


@pytest.mark.parametrize("sites", [1, 2, 3, 4])
def test_every_small_topology_agrees_with_brute_force(sites):
    found = every_topology(sites)
    assert len(found) == 12 ** (sites - 1)
    for topology in found:
        assert_agrees_with_brute_force(topology)


@settings(max_examples=60, deadline=None)
@given(topologies(5, 10))
def test_random_topologies_agree_with_brute_force(topology):
    assert_agrees_with_brute_force(topology)


@settings(max_examples=40, deadline=None)
@given(topologies(1, 6))
def test_expansion_of_appendix_a(topology):
    module = generic_module(topology, bond=3, outputs=2, width=2)
    x = torch.randn(topology.sites, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    terms = terms_by_inclusion_exclusion(module, x)
    total = torch.zeros(2, dtype=torch.float64)
    for members, value in terms.items():
        if topology.contains(members):
            by_path = term_by_path(module, x, members)
            scale = max(1.0, by_path.abs().max().item())
            torch.testing.assert_close(value, by_path, rtol=0, atol=1e-10 * scale)
            total += by_path
    output = module(x[None])[0].detach()
    torch.testing.assert_close(output, total, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("name", "terms"), [("residual", 2**9 - 1), ("plain", 1), ("linear", 9), ("volterra", 9)])
def test_presets_count(name, terms):
    topology = Topology.preset(name, 9)
    assert topology.count_terms() == terms
    assert topology.name == name
    assert not topology.dead_sites()


def test_long_chains_answer_at_once_and_exactly():
    topology = Topology.residual(200)
    start = time.perf_counter()
    assert topology.count_terms() == 2**200 - 1
    assert sum(topology.count_terms(order) for order in (1, 2, 199, 200)) == 200 + 19900 + 200 + 1
    assert topology.orders() == tuple(range(1, 201))
    assert topology.contains({1, 100, 200})
    assert topology.without_skip(150).contains({1, 149}) is False
    assert time.perf_counter() - start < 60  # enumeration would never end


def test_nothing_is_not_an_interaction():
    for topology in every_topology(3):
        assert topology.contains(()) is False
        assert topology.count_terms(0) == 0


def test_is_a_frozen_value():
    topology = Topology.residual(4)
    assert topology == Topology.residual(4)
    assert len({topology, Topology.residual(4), topology.without_skip(3)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        topology.sites = 5


def test_edits_of_all_sites_make_another_preset():
    residual = Topology.residual(5)
    assert residual.without_chain(2, 3, 4, 5) == Topology.linear(5)
    assert residual.without_skip(2, 3, 4, 5).without_linear(2, 3, 4, 5) == Topology.plain(5)
    assert residual.skip_to_output(2).skips == ("output", "full", "full", "full")
    assert residual.without_skip(2, 3, 4, 5) == Topology.volterra(5)


def test_output_skip_at_the_last_site_is_a_full_skip():
    full, output = Topology.residual(4), Topology.residual(4).skip_to_output(4)
    assert [full.contains(s) for s in subsets(4)] == [output.contains(s) for s in subsets(4)]
    assert full.full_skips == output.full_skips == 3


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Topology.residual(0), ValueError, ["sites", "0", "1"]),
        (lambda: Topology.residual(2.5), TypeError, ["sites", "2.5"]),
        (lambda: Topology.residual(True), TypeError, ["sites", "True"]),
        (lambda: Topology.residual(4).without_skip(1), ValueError, ["site 1", "skip"]),
        (lambda: Topology.residual(4).skip_to_output(5), ValueError, ["site", "5", "2…4"]),
        (lambda: Topology.residual(4).without_chain(0), ValueError, ["site", "0"]),
        (lambda: Topology.residual(4).without_chain(), TypeError, ["at least one site"]),
        (lambda: Topology.residual(4).contains({5}), ValueError, ["sites", "5", "1…4"]),
        (lambda: Topology.residual(4).contains("12"), TypeError, ["sites", "12"]),
        (lambda: Topology.residual(4).contains(3), TypeError, ["sites", "3"]),
        (lambda: Topology.residual(4).count_terms(-1), ValueError, ["order", "-1"]),
        (lambda: Topology.preset("residul", 4), ValueError, ["topology", "residul", "residual"]),
        (lambda: Topology(3, (True,), (True, True), ("full", "full")), ValueError, ["chains", "2 entries", "1"]),
        (lambda: Topology(3, (True, 7), (True, True), ("full", "full")), TypeError, ["chains", "7"]),
        (lambda: Topology(2, (True,), (True,), ("half",)), ValueError, ["skips", "half", "full"]),
        (lambda: Topology(2, True, (True,), ("full",)), TypeError, ["chains", "True"]),
    ],
)
def test_bad_input(make, error, words):
    with pytest.raises(error) as raised:
        make()
    for word in words:
        assert word in str(raised.value)


def test_text_form_is_compact():
    text = str(Topology.residual(196).without_skip(50))
    assert len(text.splitlines()) == 5
    assert "site 50" in text
    assert "chain + linear + skip" in text
    assert "no interaction" in str(Topology.plain(3).without_chain(3))
    assert "1 term, order 3" in str(Topology.plain(3))


@given(topologies(1, 6))
def test_plain_values_and_back(topology):
    config = json.loads(json.dumps(topology.to_config()))
    assert Topology.from_config(config) == topology
    assert Topology.from_config({name: config[name] for name in ("chains", "linears", "skips")}) == topology


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"chains": [True]}, ValueError, "config must be a dict with chains, linears, skips"),
        ([True], ValueError, "config must be a dict"),
        ({"chains": [True], "linears": [True], "skips": ["full"], "loops": []}, ValueError, "config must be a dict"),
        ({"chains": "yes", "linears": [True], "skips": ["full"]}, TypeError, "config\\['chains'\\] must be a list"),
        ({"sites": 3, "chains": [1], "linears": [1], "skips": ["full"]}, ValueError, "chains must have 2 entries"),
        ({"chains": [True], "linears": [True], "skips": ["half"]}, ValueError, "skips must be one of"),
    ],
)
def test_plain_values_that_are_no_topology(config, error, message):
    with pytest.raises(error, match=message):
        Topology.from_config(config)


@given(topologies(1, 6))
def test_flags_say_what_each_site_keeps(topology):
    assert len(topology.connection_flags) == topology.sites - 1
    for flags, chain, linear, skip in zip(
        topology.connection_flags, topology.chains, topology.linears, topology.skips, strict=True
    ):
        assert (bool(flags & 1), bool(flags & 2)) == (chain, linear)
        assert {4: "full", 8: "output", 0: "none"}[flags & 12] == skip


def test_flags_are_no_part_of_what_a_topology_is():
    one, other = Topology.residual(4), Topology.residual(4)
    assert one.connection_flags == b"\x07\x07\x07"
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == other
