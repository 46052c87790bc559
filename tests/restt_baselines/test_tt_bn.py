import numpy as np
import pytest
import torch
from torch import nn

from restt import baselines
from restt.train import TrainConfig, train
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


class OneRun(nn.Module):
    """Run k of a stacked train, site by site with torch's own batch norms."""

    def __init__(self, stacked: NormalisedTrain, run: int) -> None:
        super().__init__()
        shared = stacked.statistics == "shared"
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(stacked.bond_dim, eps=stacked.eps).double() for _ in range(stacked.sites - 1)
        )
        if shared:
            self.norms = nn.ModuleList([self.norms[0]] * (stacked.sites - 1))
        for n, norm in enumerate(self.norms):
            norm.weight = norm.weight if shared and n else nn.Parameter(_norm_of(stacked.gain, run, n, shared))
            norm.bias = norm.bias if shared and n else nn.Parameter(_norm_of(stacked.shift, run, n, shared))
        self.cores = nn.ParameterList(
            value[run].detach().clone() for value in (stacked.first, *stacked.cores.unbind(1), stacked.last)
        )

    def forward(self, x):  # (B, N, I)
        first, *inner, last = self.cores
        state = self.norms[0](torch.einsum("bi,ai->ba", x[:, 0], first))
        for n, core in enumerate(inner, start=1):
            state = self.norms[n](torch.einsum("bi,bk,aik->ba", x[:, n], state, core))
        return torch.einsum("bi,bk,oik->bo", x[:, -1], state, last)


def _norm_of(values, run, n, shared):
    return (values[run] if shared else values[run, n]).detach().clone()


def random_train(statistics, sites=5, runs=3, seed=0, inference="reference", **settings):
    module = NormalisedTrain(sites, 2, 4, 3, runs, statistics, seed=2, inference=inference, **settings).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in (module.gain, module.shift):
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return module


def batches(count, sites=5, runs=3, rows=7):
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(runs, rows, sites, 2, generator=generator, dtype=torch.float64) for _ in range(count)]


def predicted_with(reference, rows, single):
    """Rows by the statistics of ``reference`` (K, N, I): torch's norms after one batch, averaged with weight 1."""
    spread = len(reference) / (len(reference) - 1)  # torch keeps the unbiased variance
    state = row_state = None
    for n, norm in enumerate(single.norms):
        state, row_state = (
            torch.einsum("bi,ai->ba", x[:, n], single.cores[0])
            if n == 0
            else torch.einsum("bi,bk,aik->ba", x[:, n], before, single.cores[n])
            for x, before in ((reference, state), (rows, row_state))
        )
        fresh = nn.BatchNorm1d(len(norm.weight), eps=norm.eps, momentum=1.0).double()
        fresh.weight, fresh.bias = norm.weight, norm.bias
        state = fresh(state)
        fresh.running_var /= spread
        row_state = fresh.eval()(row_state)
    return torch.einsum("bi,bk,oik->bo", rows[:, -1], row_state, single.cores[-1])


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("sites", [2, 3, 5])
def test_each_run_is_a_train_with_torchs_batch_norms(statistics, sites):
    """Outputs and gradients in training, the running statistics after it, and outputs in evaluation."""
    stacked = random_train(statistics, sites, inference="running", eps=1e-3)
    singles = [OneRun(stacked, run) for run in range(3)]
    steps = batches(4, sites)
    for x in steps:
        output = stacked(x)
        expected = torch.stack([single(rows) for single, rows in zip(singles, x, strict=True)])
        torch.testing.assert_close(output, expected)
    upstream = torch.randn_like(output)
    (output * upstream).sum().backward()
    (expected * upstream).sum().backward()
    for run, single in enumerate(singles):
        first, *inner, last = [core.grad for core in single.cores]
        torch.testing.assert_close(stacked.first.grad[run], first)
        torch.testing.assert_close(stacked.last.grad[run], last)
        for n, gradient in enumerate(inner):
            torch.testing.assert_close(stacked.cores.grad[run, n], gradient)
        for n, norm in enumerate(single.norms):
            place = (run,) if statistics == "shared" else (run, n)
            torch.testing.assert_close(stacked.gain.grad[place], norm.weight.grad)
            torch.testing.assert_close(stacked.shift.grad[place], norm.bias.grad)
            torch.testing.assert_close(stacked.running_mean[place], norm.running_mean)
            torch.testing.assert_close(stacked.running_var[place], norm.running_var)
    stacked.eval()
    before = stacked.running_mean.clone()
    expected = torch.stack([single.eval()(rows) for single, rows in zip(singles, steps[0], strict=True)])
    torch.testing.assert_close(stacked(steps[0]), expected)
    assert torch.equal(stacked.running_mean, before)


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("sites", [2, 5])
def test_prediction_takes_the_statistics_of_the_last_batch_under_the_current_weights(statistics, sites):
    stacked = random_train(statistics, sites, reference_rows=7)
    old, batch, rows = batches(3, sites)
    stacked(old)
    stacked(batch)
    with torch.no_grad():
        stacked.cores.mul_(1.3)
        stacked.first.add_(0.2)
    singles = [OneRun(stacked, run) for run in range(3)]
    expected = [predicted_with(*data) for data in zip(batch, rows, singles, strict=True)]
    torch.testing.assert_close(stacked.eval()(rows), torch.stack(expected))
    # The rows the statistics are of are predicted as they are trained on.
    torch.testing.assert_close(stacked(batch), stacked.train()(batch))


@pytest.mark.parametrize("inference", INFERENCES)
def test_a_row_is_predicted_the_same_whatever_rows_come_with_it(inference):
    module = random_train("site", inference=inference)
    batch, rows = batches(2)
    module(batch)
    module.eval()
    apart = [module(rows[:, :1]), module(rows[:, 1:4]), module(rows[:, 4:])]
    torch.testing.assert_close(module(rows), torch.cat(apart, dim=1))


def test_the_reference_holds_the_newest_rows():
    module = random_train("site", reference_rows=6)
    small, large = batches(1, rows=4)[0], batches(1, rows=13)[0]
    module(small)
    assert torch.equal(module.reference, torch.cat([small, small[:, :2]], dim=1))
    module(large)
    assert torch.equal(module.reference, large[:, [0, 2, 4, 6, 8, 10]])
    module(small)
    assert torch.equal(module.reference, torch.cat([small, large[:, [0, 2]]], dim=1))
    module.eval()(large)
    assert torch.equal(module.reference[:, :4], small)


@pytest.mark.parametrize("inference", INFERENCES)
@pytest.mark.parametrize("statistics", STATISTICS)
def test_rows_shared_by_the_runs_need_no_copies(statistics, inference):
    shared, copied = (random_train(statistics, inference=inference) for _ in range(2))
    x = batches(1)[0][0]
    torch.testing.assert_close(shared(x), copied(x.expand(3, -1, -1, -1)))
    torch.testing.assert_close(shared.state_dict(), copied.state_dict())


@pytest.mark.parametrize("inference", INFERENCES)
@pytest.mark.parametrize("statistics", STATISTICS)
def test_a_batch_of_one_row_is_treated_as_in_evaluation(statistics, inference):
    module = random_train(statistics, inference=inference)
    module(batches(1)[0])
    row = batches(2)[1][:, :1]
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
    module = NormalisedTrain(6, 2, 4, 1, runs=2, reference_rows=16)
    config = TrainConfig(epochs=[2, 4], batch_size=20, lr=1e-2, seed=0)
    records = list(train(module, x[0], y, config=config, validation=held))
    assert (module.filled == 1).all()
    rows = {tuple(row) for row in x[0].flatten(1).tolist()}
    assert all(tuple(row) in rows for row in module.reference.flatten(0, 1).flatten(1).tolist())
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
    module = NormalisedTrain(30, 2, 10, 10, runs=2)
    turn = torch.tensor([0.6, 0.8])
    step = torch.einsum("snaib,i->snab", module.cores.detach(), turn)
    torch.testing.assert_close(step @ step.mT, torch.eye(10).expand_as(step))
    assert (module.gain == 1).all()
    assert (module.shift == 1).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("inference", INFERENCES)
@pytest.mark.parametrize("statistics", STATISTICS)
def test_a_step_can_be_captured(statistics, inference):
    module, twin = (NormalisedTrain(8, 2, 4, 3, 2, statistics, inference=inference).cuda() for _ in range(2))
    x = torch.rand(2, 16, 8, 2, device="cuda")
    side = torch.cuda.Stream()
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
    built = baselines.make("tt-bn-paper", task="classification", bond_dim=50).build(9, 3, 2, 0)
    for weight in (built.first, built.cores, built.last):
        assert weight.std().item() == pytest.approx(50**-0.5, rel=0.15)
    usual = nn.BatchNorm1d(50)
    assert built.eps == usual.eps
    assert (built.statistics, built.inference) == ("shared", "running")
    assert torch.equal(built.shift[0], usual.bias)
    assert torch.equal(built.gain[1], usual.weight)
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
        random_train("site")(torch.rand(2, 7, 5, 2, dtype=torch.float64))
