"""The update as a Triton kernel: for real where there is a GPU, elsewhere under Triton's interpreter."""

from __future__ import annotations

import os

import pytest
import torch

from tests.chain.cuda.interpreter import mend_interpreter

pytest.importorskip(
    "triton", "3.6", reason="the fused GPU kernels need triton 3.6, which comes with torch 2.11 for CUDA"
)

import restt
from restt.train import Penalty, TrainConfig, train
from restt.train import step as optimizers
from restt.train.adam_kernel import BLOCK
from restt.train.adam_kernel import Update as Kernel
from restt.train.step import MOST_TENSORS, Adam, Update

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
TOLERANCE = {torch.float32: {"rtol": 2e-6, "atol": 1e-7}, torch.float64: {"rtol": 1e-12, "atol": 1e-15}}
# One number, less than a block, whole blocks, whole blocks and a rest: all of the second run begin unaligned.
SHAPES = {"a": (1,), "b": (7, 3), "c": (2 * BLOCK,), "d": (3, 401, 2)}

pytestmark = pytest.mark.skipif(
    not ON_GPU and os.environ["TRITON_INTERPRET"] != "1", reason="neither a GPU nor Triton's interpreter"
)

if not ON_GPU:
    mend_interpreter()


def by_kernel(weights, optimizer="adam"):
    adam = Adam(weights, optimizer)
    adam._kernel = Kernel(optimizers.BETAS, optimizers.EPS, decoupled=optimizer == "adamw")
    return adam


def by_torch(weights, optimizer="adam"):
    adam = Adam(weights, optimizer)
    adam._kernel = None
    return adam


def doubled(tensors):
    """For torch's kernel: in float32 that for GPUs knows 1 - 0.999 to five digits."""
    return {name: value.double() for name, value in tensors.items()}


def random_tensors(seed, dtype, runs=3, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return {
        name: (scale * torch.randn(runs, *shape, generator=generator, dtype=torch.float64)).to(DEVICE, dtype)
        for name, shape in SHAPES.items()
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.5)])
def test_updates_are_those_of_torchs_fused_kernel(optimizer, dtype, betas, monkeypatch):
    monkeypatch.setattr(optimizers, "BETAS", betas)
    monkeypatch.setattr(optimizers, "EPS", 1e-6)
    found, expected = random_tensors(0, dtype), doubled(random_tensors(0, dtype))
    ours, torchs = by_kernel(found, optimizer), by_torch(expected, optimizer)
    groups, rates, numbers, decays = [range(1), range(1, 3)], [1e-3, 3e-2], [1, 6], [0.0, 0.1]
    for step in range(3):
        # From tiny to large: eps counts in some and not in others.
        gradients = random_tensors(1 + step, dtype, scale=10.0 ** (3 * step - 6))
        for group, rate, number, decay in zip(groups, rates, numbers, decays, strict=True):
            update = Update(group, decay, float(number + step), torch.tensor(rate, device=DEVICE))
            norms = ours.step(gradients, update)
            # Of a rate in a tensor torch's kernel for CPUs takes the value at once, that for GPUs where it runs.
            assert torchs.step(doubled(gradients), update if ON_GPU else update._replace(lr=update.lr.item())) is None
            whole = torch.cat([update.of(value).flatten(1) for value in gradients.values()], 1)
            torch.testing.assert_close(norms, whole.double().norm(dim=1), rtol=1e-6, atol=0)
    for name in SHAPES:
        torch.testing.assert_close(found[name].double(), expected[name], **TOLERANCE[dtype])
        torch.testing.assert_close(ours.first[name].double(), torchs.first[name], **TOLERANCE[dtype])
        torch.testing.assert_close(ours.second[name].double(), torchs.second[name], **TOLERANCE[dtype])


def test_the_first_of_very_many_steps_is_corrected_to_the_last_digit():
    """1 - 0.999 in float32 would be right in four digits."""
    found, expected = random_tensors(0, torch.float64), random_tensors(0, torch.float64)
    ours, torchs, gradients = by_kernel(found), by_torch(expected), random_tensors(1, torch.float64)
    # A rate that is the same in float32 and float64.
    for number in (1.0, 2.0, 1e6):
        for adam in (ours, torchs):
            adam.step(gradients, Update(range(3), 0.0, number, 0.25))
    for name in SHAPES:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("runs", [1, 3])
def test_scattered_gradients_and_a_rate_that_is_a_number(runs):
    found, expected = random_tensors(0, torch.float32, runs), doubled(random_tensors(0, torch.float32, runs))
    gradients = {
        name: value.transpose(1, -1).contiguous().transpose(1, -1)
        for name, value in random_tensors(1, torch.float32, runs).items()
    }
    assert not gradients["d"].is_contiguous()
    ours, torchs = by_kernel(found), by_torch(expected)
    update = Update(range(runs), 0.0, 1.0, 0.1)
    ours.step(gradients, update)
    contiguous = {name: value.contiguous() for name, value in doubled(gradients).items()}
    torchs.step(contiguous, update)
    for name in SHAPES:
        torch.testing.assert_close(found[name].double(), expected[name], **TOLERANCE[torch.float32])


def test_what_the_kernel_cannot_read_is_left_to_torch():
    like = torch.zeros(2, 3, device=DEVICE)
    assert Adam({"a": like}).finds_norms == ON_GPU
    assert not Adam({"a": torch.zeros(2, 3, 4, device=DEVICE).transpose(1, 2)}).finds_norms
    assert not Adam({"a": like.bfloat16()}).finds_norms
    assert not Adam({"a": like, "b": like.double()}).finds_norms
    assert not Adam({str(place): like for place in range(MOST_TENSORS + 1)}).finds_norms


CONFIGS = {
    "adam": {"weight_decay": (0.0, 1e-2, 1e-2)},
    "adamw": {"optimizer": "adamw", "weight_decay": 1e-2, "lr": (1e-3, 1e-2, 1e-2), "ema": 0.9},
    "clipped": {"clip_norm": 0.5, "penalty": Penalty(chain=1e-2)},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_training_is_the_same_with_either(name, monkeypatch):
    """Weights, losses and the norms of the records, which come from other places."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(40, 4, 2, generator=generator), torch.randint(0, 3, (40,), generator=generator)
    config = TrainConfig(epochs=2, batch_size=16, seed=3, **CONFIGS[name])
    found = {}
    for kind in (Kernel, None):
        monkeypatch.setattr(
            optimizers,
            "_kernel",
            lambda weights, optimizer, kind=kind: kind and kind((0.9, 0.999), 1e-8, optimizer == "adamw"),
        )
        module = restt.ResTT(4, 2, 3, 3, runs=3, device=DEVICE)
        module.reset_parameters(seed=1)
        with restt.chain.precision("float32"):
            records = list(train(module, x.to(DEVICE), y.to(DEVICE), config=config))
        found[kind] = records, dict(module.named_parameters())
    for role, value in found[None][1].items():
        torch.testing.assert_close(found[Kernel][1][role], value, rtol=1e-4, atol=1e-5)
    for ours, torchs in zip(found[Kernel][0], found[None][0], strict=True):
        assert ours.train_loss == pytest.approx(torchs.train_loss, rel=1e-4)
        assert ours.gradient_norm == pytest.approx(torchs.gradient_norm, rel=1e-4)
        assert min(ours.gradient_norm) > 0
