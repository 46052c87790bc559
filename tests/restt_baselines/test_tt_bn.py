import copy
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from restt import baselines
from restt.train import TrainConfig, train
from restt_baselines.layers import SideBySide
from restt_baselines.registry import BASELINES
from restt_baselines.tt_bn import NormalisedTrain
from tests.restt_baselines.cases import (
    assert_is_a_proper_estimator,
    assert_runs_are_independent,
    diabetes,
    digits,
    score_after_fit,
    small_table,
)

TT_BN = BASELINES["tt-bn"]

STATISTICS = ("site", "shared")
INFERENCES = ("reference", "running")


class Torchs(nn.Module):
    """The same train, site by site with torch's own batch norms."""

    def __init__(self, train: NormalisedTrain) -> None:
        super().__init__()
        self.norms = copy.deepcopy(train.norms)
        self.cores = nn.ParameterList(value.detach().clone() for value in (train.first, *train.cores, train.last))

    def forward(self, x):  # (B, N, I)
        first, *inner, last = self.cores
        norms = [self.norms[n % len(self.norms)] for n in range(len(inner) + 1)]
        state = norms[0](torch.einsum("bi,ia->ba", x[:, 0], first))
        for n, core in enumerate(inner, start=1):
            state = norms[n](torch.einsum("bi,bk,ika->ba", x[:, n], state, core))
        return torch.einsum("bi,bk,iko->bo", x[:, -1], state, last)


def random_train(statistics, sites=5, inference="reference", **settings):
    torch.manual_seed(2)
    module = NormalisedTrain(sites, 2, 4, 3, statistics, inference, **settings).double()
    with torch.no_grad():
        for parameter in module.norms.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64))
    return module


def batches(count, sites=5, rows=7):
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(rows, sites, 2, generator=generator, dtype=torch.float64) for _ in range(count)]


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("sites", [2, 3, 5])
def test_is_a_train_with_torchs_batch_norms(statistics, sites):
    """Outputs and gradients in training, the running statistics after it, and outputs in evaluation."""
    module = random_train(statistics, sites, inference="running", eps=1e-3)
    own = Torchs(module)
    steps = batches(4, sites)
    for x in steps:
        output, expected = module(x), own(x)
        torch.testing.assert_close(output, expected)
    upstream = torch.randn_like(output)
    (output * upstream).sum().backward()
    (expected * upstream).sum().backward()
    first, *inner, last = [core.grad for core in own.cores]
    torch.testing.assert_close(module.first.grad, first)
    torch.testing.assert_close(module.last.grad, last)
    for gradient, of_core in zip(inner, module.cores.grad if inner else (), strict=True):
        torch.testing.assert_close(of_core, gradient)
    for parameter, of_torch in zip(module.norms.parameters(), own.norms.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, of_torch.grad)
    torch.testing.assert_close(module.norms.state_dict(), own.norms.state_dict())
    torch.testing.assert_close(module.eval()(steps[0]), own.eval()(steps[0]))
    torch.testing.assert_close(module.norms.state_dict(), own.norms.state_dict())


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("sites", [2, 5])
def test_prediction_takes_the_statistics_of_the_last_batch_under_the_current_weights(statistics, sites):
    module = random_train(statistics, sites, reference_rows=7)
    old, batch, rows = batches(3, sites)
    module(old)
    module(batch)
    with torch.no_grad():
        module.cores.mul_(1.3)
        module.first.add_(0.2)
    own = Torchs(module)
    module.eval()
    # The rows the statistics are of are predicted as they are trained on, each alone too.
    for row, expected in zip(batch, own(batch), strict=True):
        torch.testing.assert_close(module(row[None])[0], expected)
    if statistics == "site":  # where torch's averages after one batch of weight 1 are that batch's statistics
        for norm in own.norms:
            norm.momentum, norm.track_running_stats = 1.0, True
            norm.running_mean, norm.running_var = torch.zeros(4).double(), torch.ones(4).double()
        own(batch)
        for norm in own.norms:
            norm.running_var *= (len(batch) - 1) / len(batch)  # torch keeps the unbiased variance
        torch.testing.assert_close(module(rows), own.eval()(rows))


@pytest.mark.parametrize("inference", INFERENCES)
def test_a_row_is_predicted_the_same_whatever_rows_come_with_it(inference):
    module = random_train("site", inference=inference)
    batch, rows = batches(2)
    module(batch)
    module.eval()
    apart = [module(rows[:1]), module(rows[1:4]), module(rows[4:])]
    torch.testing.assert_close(module(rows), torch.cat(apart))


def test_the_reference_holds_the_newest_rows():
    module = random_train("site", reference_rows=6)
    small, large = batches(1, rows=4)[0], batches(1, rows=13)[0]
    module(small)
    assert torch.equal(module.reference, torch.cat([small, small[:2]]))
    module(large)
    assert torch.equal(module.reference, large[[0, 2, 4, 6, 8, 10]])
    module(small)
    assert torch.equal(module.reference, torch.cat([small, large[[0, 2]]]))
    module.eval()(large)
    assert torch.equal(module.reference[:4], small)


@pytest.mark.parametrize("inference", INFERENCES)
@pytest.mark.parametrize("statistics", STATISTICS)
def test_a_batch_of_one_row_is_treated_as_in_evaluation(statistics, inference):
    module = random_train(statistics, inference=inference)
    module(batches(1)[0])
    row = batches(2)[1][:1]
    before = {name: value.clone() for name, value in module.state_dict().items()}
    in_training = module(row)
    assert torch.equal(in_training, module.eval()(row))
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("statistics", STATISTICS)
def test_sites_that_never_change_leave_gradients_finite(statistics):
    module = NormalisedTrain(60, 2, 8, 3, statistics=statistics)
    angle = torch.rand(32, 60, generator=torch.Generator().manual_seed(0))
    angle[:, :40] = 0
    x = torch.stack([angle.cos(), angle.sin()], dim=-1)
    module(x).square().sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() < 1e6, name
    assert module.eval()(x).isfinite().all()


def test_what_is_published_after_training_predicts_as_what_was_trained():
    """The reference travels with the weights: the last record's score is that of the module given back."""
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(2, 50, 6, 2, generator=generator)
    y, held = x[0, :, 0, 0] * x[0, :, 3, 1], (x[1], x[1, :, 0, 0])
    module = SideBySide(lambda: NormalisedTrain(6, 2, 4, 1, reference_rows=16), runs=2, seed=0, row=(6, 2))
    config = TrainConfig(epochs=[2, 4], batch_size=20, lr=1e-2, seed=0)
    records = list(train(module, x[0], y, config=config, validation=held))
    assert (module.network.filled == 1).all()
    rows = {tuple(row) for row in x[0].flatten(1).tolist()}
    assert all(tuple(row) in rows for row in module.network.reference.flatten(0, 1).flatten(1).tolist())
    with torch.no_grad():
        error = (module.eval()(x[1])[..., 0] - held[1]).square().mean(1)
    losses = [records[1].validation["loss"][0], records[-1].validation["loss"][1]]
    np.testing.assert_allclose(error.numpy(), losses, rtol=1e-5)


@pytest.mark.parametrize("inference", INFERENCES)
def test_what_is_kept_does_not_break_the_backward_pass(inference):
    """Two passes, each of which updates buffers in place, before one backward."""
    module = random_train("site", inference=inference)
    one, two = batches(2)
    (module(one) + module(two)).sum().backward()
    assert module.cores.grad.isfinite().all()


def test_cores_start_as_rotations():
    module = NormalisedTrain(30, 2, 10, 10)
    step = torch.einsum("niab,i->nab", module.cores.detach(), torch.tensor([0.6, 0.8]))
    torch.testing.assert_close(step @ step.mT, torch.eye(10).expand_as(step))
    assert all((norm.weight == 1).all() and (norm.bias == 1).all() for norm in module.norms)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("inference", INFERENCES)
@pytest.mark.parametrize("statistics", STATISTICS)
def test_a_step_can_be_captured(statistics, inference):
    make = partial(NormalisedTrain, 8, 2, 4, 3, statistics, inference)
    module, twin = (SideBySide(make, 2, seed=0, row=(8, 2)).cuda() for _ in range(2))
    x = torch.rand(2, 16, 8, 2, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        module(x).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = module(x)
    graph.replay()
    twin(x)
    torch.testing.assert_close(output, twin(x))
    torch.testing.assert_close(module.state_dict(), twin.state_dict())


def test_the_papers_recipe_starts_from_gaussian_cores_and_torchs_norm():
    built = baselines.make("tt-bn-paper", task="classification", bond_dim=50).build(9, 3, 2, 0).network
    for weight in (built.first, built.cores, built.last):
        assert weight.std().item() == pytest.approx(50**-0.5, rel=0.15)
    usual, (norm,) = nn.BatchNorm1d(50), built.norms
    assert norm.eps == usual.eps
    assert torch.equal(norm.bias[0], usual.bias)
    assert torch.equal(norm.weight[1], usual.weight)
    assert torch.equal(norm.running_var[0], usual.running_var)
    with pytest.raises(ValueError, match="init must be one of"):
        baselines.make("tt-bn-paper", init="zeros").build(9, 3, 1, 0)


def test_learns_digits_of_16_pixels():
    estimator = baselines.make("tt-bn", loss="cross-entropy", batch_size=128, epochs=20, random_state=0)
    assert score_after_fit(estimator, digits(side=4)) > 0.8


def test_learns_diabetes():
    estimator = baselines.make("tt-bn", task="regression", bond_dim=10, batch_size=128, epochs=40, random_state=0)
    assert score_after_fit(estimator, diabetes()) > 0.25


@pytest.mark.parametrize("inference", INFERENCES)
@pytest.mark.parametrize("statistics", STATISTICS)
def test_runs_are_independent(statistics, inference):
    assert_runs_are_independent(TT_BN.make("regression", bond_dim=3, statistics=statistics, inference=inference))


@pytest.mark.parametrize("statistics", STATISTICS)
def test_is_a_proper_estimator(statistics):
    assert_is_a_proper_estimator(TT_BN.make, bond_dim=3, statistics=statistics)


@pytest.mark.parametrize(
    ("settings", "columns", "words"),
    [
        ({"statistics": "layer"}, 5, "statistics"),
        ({"inference": "batch"}, 5, "inference"),
        ({"eps": 0.0}, 5, "eps"),
        ({"bond_dim": 0}, 5, "bond_dim"),
        ({}, 1, "at least 2 columns"),
    ],
)
def test_what_cannot_be_built_is_named(settings, columns, words):
    X, y = small_table("regression", columns=5)
    with pytest.raises(ValueError, match=words):
        TT_BN.make("regression", **settings).fit(X[:, :columns], y)


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match=r"\(B, 5, 2\) or \(3, B, 5, 2\), got \(2, 7, 5, 2\)"):
        TT_BN.make("regression").build(5, 3, 3, seed=0)(torch.rand(2, 7, 5, 2))
