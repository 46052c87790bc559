import pytest
import torch
from torch import nn

from restt import baselines
from restt.baselines import tt_bn
from restt.baselines.normalised_train import NormalisedTrain
from tests.baselines.cases import (
    assert_is_a_proper_estimator,
    assert_runs_are_independent,
    diabetes,
    digits,
    score_after_fit,
    small_table,
)

STATISTICS = ("site", "shared")


class OneRun(nn.Module):
    """Run k of a stacked train, site by site with torch's own batch norms."""

    def __init__(self, stacked: NormalisedTrain, run: int) -> None:
        super().__init__()
        shared = stacked.statistics == "shared"
        self.norms = nn.ModuleList(nn.BatchNorm1d(stacked.bond_dim).double() for _ in range(stacked.sites - 1))
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


def random_train(statistics, sites=5, runs=3, seed=0):
    module = NormalisedTrain(sites, 2, 4, 3, runs, statistics, seed=2).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in (module.gain, module.shift):
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return module


def batches(count, sites=5, runs=3):
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(runs, 7, sites, 2, generator=generator, dtype=torch.float64) for _ in range(count)]


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("sites", [2, 3, 5])
def test_each_run_is_a_train_with_torchs_batch_norms(statistics, sites):
    """Outputs and gradients in training, the running statistics after it, and outputs in evaluation."""
    stacked = random_train(statistics, sites)
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
def test_rows_shared_by_the_runs_need_no_copies(statistics):
    shared, copied = random_train(statistics), random_train(statistics)
    x = batches(1)[0][0]
    torch.testing.assert_close(shared(x), copied(x.expand(3, -1, -1, -1)))
    torch.testing.assert_close(shared.running_var, copied.running_var)


@pytest.mark.parametrize("statistics", STATISTICS)
def test_a_batch_of_one_row_uses_the_running_statistics(statistics):
    module = random_train(statistics)
    module(batches(1)[0])
    row = batches(2)[1][:, :1]
    before = module.running_var.clone()
    in_training = module(row)
    assert torch.equal(in_training, module.eval()(row))
    assert torch.equal(module.running_var, before)


def test_running_statistics_do_not_break_the_backward_pass():
    """Two passes, each of which updates them in place, before one backward."""
    module = random_train("site")
    one, two = batches(2)
    (module(one) + module(two)).sum().backward()
    assert module.cores.grad.isfinite().all()


def test_weights_start_with_variance_1_over_r():
    module = NormalisedTrain(30, 2, 10, 10, runs=2)
    assert module.cores.var().item() == pytest.approx(0.1, rel=0.05)
    assert (module.gain == 1).all()
    assert (module.shift == 0).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("statistics", STATISTICS)
def test_a_step_can_be_captured(statistics):
    module = NormalisedTrain(8, 2, 4, 3, 2, statistics).cuda()
    twin = NormalisedTrain(8, 2, 4, 3, 2, statistics).cuda()
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
    torch.testing.assert_close(module.running_var, twin.running_var)


def test_learns_digits_of_16_pixels():
    estimator = baselines.make("tt-bn", loss="cross-entropy", epochs=20, random_state=0)
    assert score_after_fit(estimator, digits(side=4)) > 0.8


def test_learns_diabetes():
    estimator = baselines.make("tt-bn", task="regression", bond_dim=10, epochs=40, random_state=0)
    assert score_after_fit(estimator, diabetes()) > 0.25


@pytest.mark.parametrize("statistics", STATISTICS)
def test_runs_are_independent(statistics):
    assert_runs_are_independent(tt_bn.make("regression", bond_dim=3, statistics=statistics))


@pytest.mark.parametrize("statistics", STATISTICS)
def test_is_a_proper_estimator(statistics):
    assert_is_a_proper_estimator(tt_bn.make, bond_dim=3, statistics=statistics)


@pytest.mark.parametrize(
    ("settings", "columns", "words"),
    [({"statistics": "layer"}, 5, "statistics"), ({"bond_dim": 0}, 5, "bond_dim"), ({}, 1, "at least 2 columns")],
)
def test_what_cannot_be_built_is_named(settings, columns, words):
    X, y = small_table("regression", columns=5)
    with pytest.raises(ValueError, match=words):
        tt_bn.make("regression", **settings).fit(X[:, :columns], y)


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match=r"\(B, 5, 2\) or \(3, B, 5, 2\), got \(2, 7, 5, 2\)"):
        random_train("site")(torch.rand(2, 7, 5, 2, dtype=torch.float64))
