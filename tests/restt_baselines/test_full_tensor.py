import itertools

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from restt import Topology, baselines
from restt_baselines.products import MAX_WEIGHTS, FullTensor, with_constant
from restt_baselines.registry import BASELINES
from tests.expansion import generic_module, terms_by_inclusion_exclusion
from tests.restt_baselines.cases import (
    assert_is_a_proper_estimator,
    assert_runs_are_independent,
    diabetes,
    digits,
    score_after_fit,
)

FULL_TENSOR = BASELINES["full-tensor"]


@pytest.mark.parametrize("sites", [1, 2, 3, 4])
@pytest.mark.parametrize("width", [2, 3])
def test_output_is_the_sum_over_all_products(sites, width):
    model = FullTensor(sites, width, outputs=2, runs=2, seed=1).double()
    x = torch.randn(5, sites, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tensor = model.tensor()
    expected = torch.zeros(2, 5, 2, dtype=torch.float64)
    for index in itertools.product(range(width), repeat=sites):
        product = torch.stack([x[:, n, i] for n, i in enumerate(index)]).prod(0)
        expected += product[None, :, None] * tensor[(slice(None), *index)][:, None]
    torch.testing.assert_close(model(x).detach(), expected)
    torch.testing.assert_close(model(x.expand(2, -1, -1, -1)), model(x))


@pytest.mark.parametrize("topology", [Topology.residual(4), Topology.plain(4), Topology.residual(5).without_skip(3)])
def test_contains_every_residual_train(topology):
    """The coefficient of each product of columns, read off a ResTT, put into the tensor."""
    train = generic_module(topology, outputs=2)
    sites = topology.sites
    terms = terms_by_inclusion_exclusion(train, torch.ones(sites, 1, dtype=torch.float64))
    model = FullTensor(sites, 2, outputs=2).double()
    tensor = model.tensor().zero_()
    for members, coefficient in terms.items():
        tensor[(0, *(int(site in members) for site in range(1, sites + 1)))] = coefficient
    x = torch.randn(9, sites, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(with_constant(x))[0], train(x.unsqueeze(-1)))


def test_learns_diabetes():
    assert score_after_fit(baselines.make("full-tensor", task="regression", random_state=0), diabetes()) > 0.35


def test_learns_a_parity_no_lower_order_holds():
    X = np.array(list(itertools.product([0, 1], repeat=4)))
    y = X.sum(axis=1) % 2
    assert baselines.make("full-tensor", lr=0.1, epochs=300, random_state=0).fit(X, y).score(X, y) == 1.0


@pytest.mark.parametrize(
    ("sites", "words"),
    [(20, r"2\^20·2 weights, 2,097,152, the limit is 1,048,576"), (20_000, r"2\^20000·2 weights, about 10\^6020")],
)
def test_too_many_weights_are_refused_with_their_number(sites, words):
    with pytest.raises(ValueError, match=words):
        FullTensor(sites, 2, outputs=2)
    assert FullTensor(19, 2, outputs=2).weight.numel() == MAX_WEIGHTS


def test_digits_have_too_many_columns():
    X, _, y, _ = digits()
    with pytest.raises(ValueError, match="64 columns"):
        FULL_TENSOR.make("classification").fit(X, y)


class LargestResult(TorchDispatchMode):
    """Notes the size of the largest tensor any operation makes."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.numbers = max(self.numbers, result.numel() if isinstance(result, torch.Tensor) else 0)
        return result


def test_a_row_never_holds_all_products():
    """They would be 2^16 numbers for each of 64 rows; the halves are 2^8."""
    model, x = FullTensor(16, 2, outputs=1), torch.rand(64, 16, 2)
    with LargestResult() as seen:
        model(x)
    assert 64 * 2**8 <= seen.numbers <= model.weight.numel()


def test_runs_are_independent():
    assert_runs_are_independent(FULL_TENSOR.make("regression"))


def test_is_a_proper_estimator():
    assert_is_a_proper_estimator(FULL_TENSOR.make)
