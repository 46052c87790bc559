import pytest
import torch
from torch.nn import functional

from restt.train.losses import read_targets, row_loss

CPU = torch.device("cpu")


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2


@pytest.mark.parametrize("delta", [0.3, 1.0, 5.0])
def test_huber_is_torchs(delta):
    output, target = drawn(2, 7, 3), drawn(1, 7, 3).flip(1)
    expected = functional.huber_loss(output, target.expand_as(output), delta=delta, reduction="none").mean(-1)
    assert torch.allclose(row_loss("huber", delta)(output, target), expected, rtol=1e-12)


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
