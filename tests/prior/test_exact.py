"""The posterior mean with diagonal cores is the posterior mean, and is kept where no allowed bond holds the error."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import restt
from restt import prior
from restt.prior import Settings
from restt.prior.gp import Process, condition
from restt.prior.rounding import Rounding, diagonal_module
from tests.prior.problems import LEVELS, mixed_table
from tests.prior.test_gp import COMPONENTS, made
from tests.prior.test_model import posterior_mean


@pytest.mark.parametrize("seed", range(9))
def test_the_module_of_several_members_is_their_weighted_mean(seed):
    process, data, targets, new = made(seed)
    others = [Process(process.kernel, process.theta + 0.1 * k, COMPONENTS[k], Settings()) for k in range(3)]
    posteriors = [condition(other, data, targets) for other in others]
    weights, order = np.array([0.5, 0.3, 0.2]), list(reversed(range(len(process.kernel.sites))))
    module = diagonal_module(posteriors, weights, order)
    sites = [process.kernel.sites[n] for n in order]
    vectors, states = torch.zeros(len(new), len(order), module.feature_dim).double(), process.kernel.vectors(new)
    for place, (n, site) in enumerate(zip(order, sites, strict=True)):
        vectors[:, place, : site.width] = states[n]
    expected = sum(weight * one.mean(new) for weight, one in zip(weights, posteriors, strict=True))
    torch.testing.assert_close(module(vectors), expected, rtol=1e-9, atol=1e-9)


def test_it_stays_diagonal_where_no_bond_holds_the_error():
    numbers, y = mixed_table(80)
    fitted = prior.fit(numbers, y, levels=LEVELS, settings=Settings(largest_bond=1))
    assert isinstance(fitted.module, restt.DiagonalTT)
    bond = fitted.module.bond_dim
    assert fitted.rounding == Rounding(bond, (bond, bond), 0.0, 0.0, kind="diagonal")
    np.testing.assert_allclose(fitted.outputs(numbers), posterior_mean(fitted, numbers), rtol=0, atol=1e-8)


@pytest.mark.parametrize("options", [{"dense": True}, {"bond_dim": 1}])
def test_it_is_rounded_whatever_the_error_where_that_is_asked_for(options):
    numbers, y = mixed_table(80)
    fitted = prior.fit(numbers, y, levels=LEVELS, settings=Settings(largest_bond=1), **options)
    assert isinstance(fitted.module, restt.ResTT)
    assert (fitted.rounding.kind, fitted.module.bond_dim) == ("rounded", 1)
    assert fitted.rounding.distance > fitted.tolerance
