"""What every network for images must do."""

from __future__ import annotations

import numpy as np
import torch

from restt.train import TrainConfig, train
from restt.train.runs import working_copy

SEED = 11


def images(rows: int = 40, side: int = 8, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise with a bright stripe, whose place is the class: pixels (rows, side²) in [0, 1] and labels."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, rows)
    pixels = 0.5 * rng.random((rows, side, side))
    for row, label in enumerate(labels):
        pixels[row, label * side // classes] += 0.5
    return torch.from_numpy(pixels.reshape(rows, -1)).float(), torch.from_numpy(labels)


def trained(estimator, module, ids, subset=None, **changes):
    """The records of a short training in which the module's runs are children ``ids`` of one seed."""
    x, y = images()
    x = x.to(next(module.parameters()).dtype)
    settings = {"epochs": 2, "batch_size": 16, "lr": 1e-3, "loss": estimator._loss, "seed": 5, "run_ids": ids}
    return list(train(module, x, y, config=TrainConfig(**settings | changes), subset=subset))


def assert_runs_are_independent(estimator, tolerance: float) -> None:
    """Run k trained alone, on rows of its own, ends with the weights and buffers of run k among three.

    Trained in float64: Adam divides by gradients that may be rounding errors, which differ between batched products.
    """
    many, alone = estimator.build(64, 3, 3, SEED), estimator.build(64, 3, 1, SEED)
    assert type(many.runs) is int
    for name, value in alone.state_dict().items():
        assert torch.equal(value[0], many.state_dict()[name][0]), name
    many.double()
    subsets = [range(30), range(5, 35), range(10, 40)]
    singles = [working_copy(many, [run]) for run in range(3)]
    trained(estimator, many, [0, 1, 2], subsets)
    for run, single in enumerate(singles):
        trained(estimator, single, [run], [subsets[run]])
        for name, value in single.state_dict().items():
            torch.testing.assert_close(value[0], many.state_dict()[name][run], rtol=tolerance, atol=tolerance)
    for name, value in many.state_dict().items():
        assert not torch.equal(value[0], value[1]), name


def assert_runs_may_stop_early(estimator) -> None:
    """The others go on, and the module ends with all of them."""
    module = estimator.build(64, 3, 3, SEED)
    records = trained(estimator, module, [0, 1, 2], epochs=(1, 3, 2))
    assert [record.runs for record in records] == [(0, 1, 2), (1, 2), (1,)]
    assert module.eval()(images()[0]).shape == (3, 40, 3)


def assert_every_parameter_gets_a_gradient(module) -> None:
    x, y = images()
    outputs = module(x)
    (outputs[..., 0] - y).square().sum().backward()
    for name, parameter in module.named_parameters():
        for run, gradient in enumerate(parameter.grad):
            assert gradient.abs().max() > 0, f"{name} of run {run}"


def assert_never_looks_at_values(module, pixels: int = 64) -> None:
    """A step runs on tensors without values, so it waits for no device and a CUDA graph can record it."""
    module.to("meta").train()
    module(torch.empty(module.runs, 5, pixels, device="meta")).sum().backward()
    assert all(parameter.grad.is_meta for parameter in module.parameters())
