from __future__ import annotations

import math
import warnings

import pytest
import torch
from hypothesis import given

import restt
from restt import Topology, meanfield
from restt.init.stability import LARGEST_LOG_GROWTH, LARGEST_LOG_SHRINKAGE, warn_if_unstable
from tests.strategies import topologies


def warned(topology, second_moment, sigma2):
    with warnings.catch_warnings(record=True, action="always") as caught:
        warn_if_unstable(topology, second_moment, sigma2)
    return [str(warning.message) for warning in caught]


def test_one_number_where_all_sites_share_it():
    assert meanfield.stable_sigma2(Topology.residual(11), 2.0) == pytest.approx(0.05)
    assert type(meanfield.stable_sigma2(Topology.plain(5), 1.0)) is float
    values = meanfield.stable_sigma2(Topology.plain(3), [1.0, 2.0, 4.0])
    assert values.tolist() == [1.0, 0.5, 0.25]
    assert values.dtype == torch.float64


@pytest.mark.parametrize("bond_dim", [20, 50, 100])
def test_the_papers_settings_do_not_warn(bond_dim):
    assert warned(Topology.residual(196), 1.0, 0.01) == []
    assert warned(Topology.residual(196), 1.0, bond_dim * 1e-4) == []
    assert warned(Topology.plain(196), 1.0, 1.0) == []
    assert warned(Topology.plain(10_000), 0.5, 2.0) == []


PLAIN_AFTER_SKIPS = Topology.residual(100).without_linear(*range(2, 101)).without_skip(*range(30, 101))


@pytest.mark.parametrize(
    ("topology", "sigma2", "word", "suggestion"),
    [
        (Topology.plain(196), 0.9, "vanish", "would take 1$"),
        (Topology.plain(196), 1.1, "explode", "would take 1$"),
        (Topology.residual(196), 0.1, "explode", "would take 0.00513$"),
        (Topology.residual(10_000), 0.01, "explode", "would take 0.0001$"),
        (PLAIN_AFTER_SKIPS, 0.5, "vanish", "0.0357 to 1 by site$"),
    ],
)
def test_unstable_values_warn_and_say_what_to_take(topology, sigma2, word, suggestion):
    with pytest.warns(meanfield.StabilityWarning, match=f"sigma2 makes signals {word}: .*{suggestion}"):
        warn_if_unstable(topology, 1.0, sigma2)


def test_short_chains_stand_much():
    assert warned(Topology.plain(10), 1.0, 0.5) == []
    assert warned(Topology.residual(5), 1.0, 1.0) == []
    assert warned(Topology.plain(1), 1.0, 1e6) == []
    assert warned(Topology.plain(2), 1.0, 1e6) == []


@given(topologies(min_sites=1, max_sites=8))
def test_what_the_rule_suggests_never_warns(topology):
    assert warned(topology, 1.0, "auto") == []
    assert warned(topology, 1.0, meanfield.stable_sigma2(topology, 1.0)) == []


def test_a_break_in_the_chain_ends_the_stretch():
    whole = meanfield.signal_range(Topology.plain(101), 1.0, 0.9)
    broken = meanfield.signal_range(Topology.plain(101).without_chain(51), 1.0, 0.9)
    assert whole.log_shrinkage == pytest.approx(-99 * math.log(0.9))
    assert broken.log_shrinkage == pytest.approx(-49 * math.log(0.9))
    assert whole.log_growth == 0


def test_growth_in_one_part_is_not_hidden_by_shrinkage_in_another():
    sigma2 = torch.ones(200, dtype=torch.float64)
    sigma2[1:100] = 1.2
    sigma2[100:] = 1 / 1.2
    span = meanfield.signal_range(Topology.plain(200), 1.0, sigma2)
    assert span.log_growth > LARGEST_LOG_GROWTH
    assert span.log_shrinkage > LARGEST_LOG_SHRINKAGE
    assert span.phase != "trainable"


def just(limit, beyond):
    return limit * (1.001 if beyond else 0.999)


@pytest.mark.parametrize("beyond", [False, True])
def test_a_signal_may_grow_a_thousandfold_and_shrink_a_hundredthousandfold(beyond):
    """The two limits themselves, read off a measured map: neither half nor twice as far."""
    growth, shrinkage = just(math.log(1e3), beyond), just(math.log(1e5), beyond)
    assert meanfield.SignalRange(growth, 0.0).phase == ("explode" if beyond else "trainable")
    assert meanfield.SignalRange(0.0, shrinkage).phase == ("vanish" if beyond else "trainable")


@pytest.mark.parametrize("beyond", [False, True])
@pytest.mark.parametrize(("change", "limit", "word"), [(+1, 1e3, "explode"), (-1, 1e5, "vanish")])
def test_the_warning_begins_at_the_limit(beyond, change, limit, word):
    """A plain train multiplies the variance by σ_w² at each of its 98 inner sites."""
    sigma2 = math.exp(change * just(math.log(limit), beyond) / 98)
    if not beyond:
        assert warned(Topology.plain(100), 1.0, sigma2) == []
        return
    with pytest.warns(meanfield.StabilityWarning, match=f"signals {word}"):
        warn_if_unstable(Topology.plain(100), 1.0, sigma2)


def test_of_two_limits_the_one_further_exceeded_is_named():
    growth, shrinkage = math.log(1e3), math.log(1e5)
    assert meanfield.SignalRange(3 * growth, 2 * shrinkage).phase == "explode"
    assert meanfield.SignalRange(2 * growth, 3 * shrinkage).phase == "vanish"


def test_a_module_with_an_unstable_sigma2_warns_where_it_is_built():
    with pytest.warns(meanfield.StabilityWarning, match="explode") as said:
        restt.ResTT(100, 2, 4, 1, sigma2=1.0)
    assert said[0].filename == __file__
