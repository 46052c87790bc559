import pytest
import torch
from sklearn.metrics import accuracy_score, r2_score
from torch.nn import functional

from restt.train.evaluate import evaluate
from restt.train.losses import read_targets, row_loss
from restt.train.rows import read_rows
from restt.train.stacked import Stacked
from tests.train.problems import classification, regression, small_module

CPU = torch.device("cpu")
SUBSET = [list(range(40)), [5, 9, 50, 51, 3], list(range(20, 60))]


@pytest.mark.parametrize("at_once", [7, None])
@pytest.mark.parametrize("subset", [None, SUBSET])
@pytest.mark.parametrize("weighted", [False, True])
def test_regression_scores_are_scikit_learns(at_once, subset, weighted):
    x, y = regression(dtype=torch.float64)
    y = torch.stack([y, y.square() + 3], dim=1)
    weight = torch.rand(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64) if weighted else None
    module = small_module(runs=3, outputs=2, dtype=torch.float64)
    target = read_targets(y, 2, "huber", torch.float64, CPU)
    rows = read_rows(x, target, weight, subset, 3)
    found = evaluate(Stacked(module), rows, row_loss("huber"), classes=False, at_once=at_once)
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
    rows = read_rows(x, read_targets(y, 3, "mse", torch.float32, CPU), None, None, 2)
    found = evaluate(Stacked(module), rows, row_loss("mse"), classes=True, at_once=11)
    for run in range(2):
        assert found["accuracy"][run] == pytest.approx(accuracy_score(y, module(x)[run].argmax(-1)))


def test_memory_that_runs_out_is_met_with_smaller_pieces(monkeypatch):
    x, y = regression()
    model = Stacked(small_module(runs=2))
    rows = read_rows(x, y[:, None], None, None, 2)
    expected = evaluate(model, rows, row_loss("mse"), classes=False)
    forward = Stacked.__call__

    def small_device(self, x, weights=None):
        if x.shape[1] > 10:
            raise torch.OutOfMemoryError("injected")
        return forward(self, x, weights)

    monkeypatch.setattr(Stacked, "__call__", small_device)
    found = evaluate(model, rows, row_loss("mse"), classes=False)
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-6)
