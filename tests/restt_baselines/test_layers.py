from __future__ import annotations

import pytest
import torch
from torch import nn

from restt._common.seeds import run_generator
from restt_baselines.layers import BatchNorm2d, Conv2d, Linear, as_images, draw_fan_in, image_side

RUNS = 3


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def filled(layer: nn.Module) -> nn.Module:
    layer.double()
    for number, parameter in enumerate(layer.parameters()):
        parameter.data.copy_(rand(*parameter.shape, seed=100 + number))
    return layer


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shared", [False, True])
def test_linear_is_torchs_own_run_by_run(shared):
    layer = filled(Linear(5, 4, RUNS))
    x = rand(1 if shared else RUNS, 7, 5)
    found = layer(x)
    assert found.shape == (RUNS, 7, 4)
    found.square().sum().backward()
    for run in range(RUNS):
        own = nn.Linear(5, 4, dtype=torch.float64)
        own.weight.data.copy_(layer.weight[run].T)
        own.bias.data.copy_(layer.bias[run])
        expected = own(x[0 if shared else run])
        assert_same(found[run], expected)
        expected.square().sum().backward()
        assert_same(layer.weight.grad[run], own.weight.grad.T)
        assert_same(layer.bias.grad[run], own.bias.grad)


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"padding": 2, "bias": False}])
def test_convolution_is_torchs_own_run_by_run(one_by_one, shared, options):
    layer = filled(Conv2d(2, 3, 3, RUNS, **options))
    x = rand(1 if shared else RUNS, 4, 2, 6, 6).requires_grad_()
    if one_by_one:
        found = torch.stack(layer.each(list(x.expand(RUNS, *x.shape[1:]))))
    else:
        found = layer(x)
    found.square().sum().backward()
    slopes = torch.zeros_like(x)
    for run in range(RUNS):
        own = nn.Conv2d(2, 3, 3, **options, dtype=torch.float64)
        own.weight.data.copy_(layer.weight[run])
        if own.bias is not None:
            own.bias.data.copy_(layer.bias[run])
        place = 0 if shared else run
        images = x.detach()[place].clone().requires_grad_()
        expected = own(images)
        assert_same(found[run], expected)
        expected.square().sum().backward()
        assert_same(layer.weight.grad[run], own.weight.grad)
        if own.bias is not None:
            assert_same(layer.bias.grad[run], own.bias.grad)
        slopes[place] += images.grad
    assert_same(x.grad, slopes)


def test_batch_norm_is_torchs_own_run_by_run():
    layer = filled(BatchNorm2d(3, RUNS))
    owns = []
    for run in range(RUNS):
        own = nn.BatchNorm2d(3, dtype=torch.float64)
        own.weight.data.copy_(layer.weight[run])
        own.bias.data.copy_(layer.bias[run])
        owns.append(own)
    for seed in range(3):
        batches = [rand(4, 3, 5, 5, seed=10 * seed + run) * (run + 1) + run for run in range(RUNS)]
        layer.zero_grad()
        torch.stack(layer.each(batches)).square().sum().backward()
        for run, own in enumerate(owns):
            own.zero_grad()
            own(batches[run]).square().sum().backward()
            assert_same(layer.weight.grad[run], own.weight.grad)
            assert_same(layer.bias.grad[run], own.bias.grad)
            assert_same(layer.running_mean[run], own.running_mean)
            assert_same(layer.running_var[run], own.running_var)
    layer.eval()
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    x = rand(2, 3, 5, 5, seed=7)
    for found, own in zip(layer.each([x] * RUNS), owns, strict=True):
        assert_same(found, own.eval()(x))
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


def test_batch_norm_of_a_single_value_uses_the_running_statistics():
    layer = filled(BatchNorm2d(2, 1))
    layer.running_mean[0] = torch.tensor([1.0, 2.0])
    layer.running_var[0] = torch.tensor([4.0, 9.0])
    x = rand(1, 2, 1, 1)
    found = layer.each([x])[0].flatten()
    scale = (torch.tensor([4.0, 9.0], dtype=torch.float64) + layer.eps).sqrt()
    expected = (x.flatten() - torch.tensor([1.0, 2.0])) / scale * layer.weight[0] + layer.bias[0]
    assert_same(found, expected)
    assert layer.running_mean[0].tolist() == [1.0, 2.0]
    assert layer.running_var[0].tolist() == [4.0, 9.0]


def test_layers_compute_in_the_precision_of_the_images():
    convolution, norm = Conv2d(1, 4, 3, 2, padding=1), BatchNorm2d(4, 2)
    draw_fan_in(convolution, 0, 2)
    x = torch.rand(2, 3, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    exact, rough = (
        torch.stack(norm.each(convolution.each([image.to(dtype) for image in x])))
        for dtype in (torch.float32, torch.bfloat16)
    )
    assert rough.dtype == torch.bfloat16
    assert norm.running_mean.dtype == torch.float32
    torch.testing.assert_close(rough.float(), exact, rtol=0.05, atol=0.05)


def test_draws_are_uniform_within_one_over_the_root_of_fan_in_and_a_run_s_own():
    def drawn(runs: int) -> nn.ModuleList:
        module = nn.ModuleList([Conv2d(4, 50, 5, runs), Linear(100, 60, runs)])
        draw_fan_in(module, seed=3, runs=runs)
        return module

    many = drawn(3)
    for layer in many:
        for parameter in (layer.weight, layer.bias):
            size = parameter.detach().abs() * 10  # fan_in is 100 for both
            assert size.max() <= 1.0
            assert size.max() > 0.9
            assert size.mean().item() == pytest.approx(0.5, abs=0.08)
        assert not torch.equal(layer.weight[0], layer.weight[1])
    for alone, among in zip(drawn(1).parameters(), many.parameters(), strict=True):
        assert torch.equal(alone[0], among[0])
    first = torch.rand(many[0].weight.shape[1:], generator=run_generator(3, 2)) * 0.2 - 0.1
    assert torch.equal(many[0].weight[2], first)


@pytest.mark.parametrize(("columns", "side"), [(1, 1), (64, 8), (784, 28)])
def test_side_of_square_images(columns, side):
    assert image_side(columns) == side


@pytest.mark.parametrize("columns", [0, 10, 783])
def test_other_numbers_of_columns_are_no_images(columns):
    with pytest.raises(ValueError, match=f"columns of X, one for each pixel, must form a square.*got {columns}"):
        image_side(columns)


def test_pixels_become_images_row_by_row():
    pixels = torch.arange(8.0).reshape(2, 4)
    assert as_images(pixels, 2)[0, 1, 0].tolist() == [[4.0, 5.0], [6.0, 7.0]]
    assert as_images(torch.stack([pixels, -pixels]), 2)[1, 1, 0].tolist() == [[-4.0, -5.0], [-6.0, -7.0]]
    with pytest.raises(ValueError, match=r"x must have shape \(B, 4\) or \(S, B, 4\), got \(2, 5\)"):
        as_images(torch.zeros(2, 5), 2)
