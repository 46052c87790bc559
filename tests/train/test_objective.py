import pytest
import torch
from sklearn.metrics import accuracy_score, r2_score
from torch.nn import functional

from restt.train.data import read_data
from restt.train.objective import evaluate, read_targets, row_loss
from restt.train.runs import RunsView
from tests.train.problems import classification, regression, small_module

CPU = torch.device("cpu")


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2


def test_mse_is_torchs_on_one_hot_classes():
    output, classes = drawn(2, 7, 3), torch.arange(7) % 3
    target = read_targets(classes, 3, "mse", torch.float64, CPU)
    expected = functional.mse_loss(output, functional.one_hot(classes, 3).double().expand_as(output))
    assert torch.allclose(row_loss("mse")(output, target[None]).mean(), expected, rtol=1e-12)


def test_cross_entropy_is_torchs():
    output, classes = drawn(2, 7, 3), torch.arange(7) % 3
    target = read_targets(classes, 3, "cross-entropy", torch.float64, CPU)
    found = row_loss("cross-entropy")(output, target[None])
    for run in range(2):
        assert torch.allclose(found[run], functional.cross_entropy(output[run], classes, reduction="none"), rtol=1e-12)


def test_values_become_one_column():
    assert read_targets(torch.tensor([1.5, 2.5]), 1, "mse", torch.float32, CPU).tolist() == [[1.5], [2.5]]


@pytest.mark.parametrize(
    ("y", "loss", "message"),
    [
        (torch.tensor([0, 3]), "mse", r"classes 0 … 2.*from 0 to 3"),
        (torch.tensor([[0, 1]]), "mse", r"shape \(M,\) where it holds classes, got \(1, 2\)"),
        (torch.zeros(4, 2), "mse", r"\(M,\) or \(M, 3\), got \(4, 2\)"),
        (torch.tensor([[0.0, float("nan"), 1.0]]), "mse", "finite"),
        (torch.tensor([[0.5, -0.5, 1.0]]), "cross-entropy", "negative"),
    ],
)
def test_bad_targets_are_named(y, loss, message):
    with pytest.raises(ValueError, match=message):
        read_targets(y, 3, loss, torch.float32, CPU)


CPU = torch.device("cpu")
SUBSET = [list(range(40)), [5, 9, 50, 51, 3], list(range(20, 60))]


@pytest.mark.parametrize("at_once", [7, 1024])
@pytest.mark.parametrize("subset", [None, SUBSET])
@pytest.mark.parametrize("weighted", [False, True])
def test_regression_scores_are_scikit_learns(at_once, subset, weighted, monkeypatch):
    monkeypatch.setattr("restt.train.objective.EVALUATION_ROWS", at_once)
    x, y = regression(dtype=torch.float64)
    y = torch.stack([y, y.square() + 3], dim=1)
    weight = torch.rand(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64) if weighted else None
    module = small_module(runs=3, outputs=2, dtype=torch.float64)
    target = read_targets(y, 2, "huber", torch.float64, CPU)
    rows = read_data(x, target, weight, subset, 3)
    found = evaluate(RunsView(module), rows, row_loss("huber"), classes=False)
    output = module(x).detach()
    for run in range(3):
        own = torch.arange(60) if subset is None else torch.tensor(subset[run])
        counted = None if weight is None else weight[own].numpy()
        expected = r2_score(y[own].numpy(), output[run][own].numpy(), sample_weight=counted)
        assert found["r2"][run] == pytest.approx(expected, rel=1e-9)
        shares = torch.ones(len(own)) if weight is None else weight[own]
        loss = functional.huber_loss(output[run][own], y[own], reduction="none").mean(1)
        assert found["loss"][run] == pytest.approx(((loss * shares).sum() / shares.sum()).item(), rel=1e-9)
        squares = (output[run][own] - y[own]).square().mean(1)
        assert found["rmse"][run] == pytest.approx(((squares * shares).sum() / shares.sum()).sqrt().item(), rel=1e-9)


def test_accuracy_is_scikit_learns():
    x, y = classification()
    module = small_module(runs=2, outputs=3)
    rows = read_data(x, read_targets(y, 3, "mse", torch.float32, CPU), None, None, 2)
    found = evaluate(RunsView(module), rows, row_loss("mse"), classes=True)
    for run in range(2):
        assert found["accuracy"][run] == pytest.approx(accuracy_score(y, module(x)[run].argmax(-1)))
