"""The phase diagram, and the drift of the typical run."""

from __future__ import annotations

import math

import pytest
import torch

import restt
from restt import Topology, meanfield
from restt_paper.meanfield.trainability import phase_diagram, typical_log_decay


@pytest.mark.parametrize("preset", ["plain", "residual", "volterra", "linear"])
def test_each_cell_is_what_the_warning_rule_says(preset):
    sigma2, sites = [0.01, 0.5, 1.0, 2.0], [2, 5, 50, 500]
    diagram = phase_diagram(preset, sigma2, sites, second_moment=0.9)
    for row, value in enumerate(sigma2):
        for column, n in enumerate(sites):
            expected = meanfield.signal_range(Topology.preset(preset, n), 0.9, value)
            assert diagram.phase(row, column) == expected.phase
            change = expected.log_growth - expected.log_shrinkage
            assert diagram.log_change[row, column].item() == pytest.approx(change, abs=1e-9)


def test_typical_decay_is_the_mean_of_the_log_of_a_gamma_variable():
    draws = torch.distributions.Chi2(torch.tensor(10.0, dtype=torch.float64))
    torch.manual_seed(0)
    sample = (draws.sample((200_000,)) / 10).log()
    error = sample.std().item() / math.sqrt(len(sample))
    assert typical_log_decay(10) == pytest.approx(sample.mean().item(), abs=4 * error)


def test_typical_run_of_a_narrow_train_lies_below_the_mean():
    module = restt.ResTT(102, 2, 8, 1, "plain", init="paper", runs=300)
    module.reset_parameters(seed=0)
    profile = meanfield.measure(module, restt.features.Trigonometric()(torch.rand(1, 102)))
    change = (profile.run_log_q[:, -2] - profile.run_log_q[:, 0]).sort().values
    expected = 100 * typical_log_decay(8)
    # The median of 300 runs, whose order statistics 130 and 170 bracket the true one with 98 %.
    assert change[130].item() < expected < change[170].item()
    assert expected < -10
