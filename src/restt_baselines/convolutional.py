"""Convolutional networks of the paper's Table V: LeNet-5, and ResNet18 for small images of one channel.

LeNet-5: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-based learning applied to document recognition" (1998),
as the paper describes it (two sets of convolution and average pooling, two fully connected layers, softmax):

    28×28 (padded to 32×32) → 6 maps by 5×5 → pool 2×2 → 16 maps by 5×5 → pool 2×2 → 120 → 84 → classes

61 706 weights for ten classes. Where this differs from 1998: every map of the second convolution sees all six below it,
the pooling has no weights of its own, and the last layer is a softmax instead of distances to fixed codes. The
activation, after each convolution and each hidden layer, is ReLU: trained as here it does better than the original's
tanh, which ``activation="tanh"`` gives. Images of another size are resized to 28×28 by bilinear interpolation.

ResNet18: K. He, X. Zhang, S. Ren, J. Sun, "Deep residual learning for image recognition" (2016), Table 1, 18 layers:
four stages of two blocks, each block two 3×3 convolutions with batch normalisation and a skip around them; where a
stage halves the image and widens it, the skip is a 1×1 convolution with batch normalisation (the paper's option B).
What is changed for 28×28 pixels, as is usual for small images:

- the first convolution is 3×3 with stride 1 on one channel, instead of 7×7 with stride 2 on three;
- there is no max-pooling after it, so that the stages see 28, 14, 7 and 4 pixels a side.

Images of any size are taken as they are: the last stage is averaged over its pixels. Initial weights are He's normal
ones with the variance 2 / fan-out, the last layer's torch's own. The training is Adam without augmentation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from restt._common.errors import check_choice
from restt._common.seeds import run_generator
from restt_baselines.layers import BatchNorm2d, Conv2d, Linear, as_images, draw_fan_in, image_side
from restt_baselines.network import NetworkClassifier

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}
SIDE = 28
# LeCun et al., Sec. II-B: maps of C1 and C3, units of C5 and F6.
MAPS = (6, 16)
HIDDEN = (120, 84)


class LeNet5(nn.Module):
    """The network of each run, from square images of ``side`` × ``side`` pixels."""

    def __init__(self, side: int, outputs: int, runs: int, activation: str = "relu") -> None:
        super().__init__()
        self.runs = runs
        self.side = side
        self.activation = check_choice("activation", activation, ACTIVATIONS)
        self.conv1 = Conv2d(1, MAPS[0], 5, runs, padding=2)
        self.conv2 = Conv2d(MAPS[0], MAPS[1], 5, runs)
        self.hidden1 = Linear(MAPS[1] * 5 * 5, HIDDEN[0], runs)
        self.hidden2 = Linear(HIDDEN[0], HIDDEN[1], runs)
        self.head = Linear(HIDDEN[1], outputs, runs)

    def forward(self, x: Tensor) -> Tensor:  # (B, P) or (S, B, P) -> (S, B, O)
        """Outputs of every run."""
        images = as_images(x, self.side)
        if self.side != SIDE:
            resized = F.interpolate(images.flatten(0, 1), (SIDE, SIDE), mode="bilinear", align_corners=False)
            images = resized.unflatten(0, images.shape[:2])
        act = ACTIVATIONS[self.activation]
        maps = _pooled(act(self.conv1(images)))  # (S, B, 6, 14, 14)
        maps = _pooled(act(self.conv2(maps)))  # (S, B, 16, 5, 5)
        return self.head(act(self.hidden2(act(self.hidden1(maps.flatten(2))))))


def _pooled(maps: Tensor) -> Tensor:  # (S, B, C, H, W) -> (S, B, C, H/2, W/2)
    return F.avg_pool2d(maps.flatten(0, 1), 2).unflatten(0, maps.shape[:2])


@dataclass(kw_only=True, eq=False, repr=False)
class LeNet5Classifier(NetworkClassifier):
    """``activation`` is ``"relu"`` or ``"tanh"``; other settings: see :class:`Network`."""

    images = True

    activation: str = "relu"
    epochs: int = 60
    batch_size: int | None = 64
    lr: float = 5e-3
    weight_decay: float = 1e-4
    schedule: str = "cosine"
    scaling: str = "shared"

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> nn.Module:
        """The untrained module."""
        module = LeNet5(image_side(columns), outputs, runs, self.activation)
        draw_fan_in(module, seed, runs)
        return module


# He et al., Table 1.
CHANNELS = (64, 128, 256, 512)
BLOCKS = 2

PRECISIONS = ("float32", "bf16")


class Block(nn.Module):
    """relu(x + bn(conv(relu(bn(conv(x)))))) for each run."""

    def __init__(self, inputs: int, outputs: int, stride: int, runs: int) -> None:
        super().__init__()
        self.conv1 = Conv2d(inputs, outputs, 3, runs, stride=stride, padding=1, bias=False)
        self.norm1 = BatchNorm2d(outputs, runs)
        self.conv2 = Conv2d(outputs, outputs, 3, runs, padding=1, bias=False)
        self.norm2 = BatchNorm2d(outputs, runs)
        self.skip_conv: Conv2d | None = None
        self.skip_norm: BatchNorm2d | None = None
        if stride > 1 or inputs != outputs:
            self.skip_conv = Conv2d(inputs, outputs, 1, runs, stride=stride, bias=False)
            self.skip_norm = BatchNorm2d(outputs, runs)

    def each(self, xs: Sequence[Tensor]) -> list[Tensor]:  # S of (B, C, H, W) -> S of (B, C', H', W')
        """The runs one after the other."""
        skips = xs
        if self.skip_conv is not None and self.skip_norm is not None:
            skips = self.skip_norm.each(self.skip_conv.each(xs))
        ys = [y.relu_() for y in self.norm1.each(self.conv1.each(xs))]
        ys = self.norm2.each(self.conv2.each(ys))
        return [y.add_(skip).relu_() for y, skip in zip(ys, skips, strict=True)]


class ResNet18(nn.Module):
    """The network of each run, from square images of ``side`` × ``side`` pixels.

    A single run fills a GPU, so the runs are computed one after the other, layer by layer.
    """

    def __init__(self, side: int, outputs: int, runs: int, precision: str = "float32") -> None:
        super().__init__()
        self.runs = runs
        self.side = side
        self.precision = check_choice("precision", precision, PRECISIONS)
        self.conv = Conv2d(1, CHANNELS[0], 3, runs, padding=1, bias=False)
        self.norm = BatchNorm2d(CHANNELS[0], runs)
        self.blocks = nn.ModuleList()
        width = CHANNELS[0]
        for stage, channels in enumerate(CHANNELS):
            for block in range(BLOCKS):
                self.blocks.append(Block(width, channels, 2 if stage > 0 and block == 0 else 1, runs))
                width = channels
        self.head = Linear(width, outputs, runs)

    def forward(self, x: Tensor) -> Tensor:  # (B, P) or (S, B, P) -> (S, B, O)
        """Outputs of every run."""
        images = as_images(x, self.side)
        dtype = torch.bfloat16 if self.precision == "bf16" else x.dtype
        xs = [image.to(dtype, memory_format=torch.channels_last) for image in images]
        if len(xs) == 1:
            xs = xs * len(self.head.weight)
        xs = [y.relu_() for y in self.norm.each(self.conv.each(xs))]
        for block in self.blocks:
            assert isinstance(block, Block)
            xs = block.each(xs)
        return self.head(torch.stack([y.mean((2, 3), dtype=x.dtype) for y in xs]))


@torch.no_grad()
def draw_he(module: nn.Module, seed: int, runs: int) -> None:
    """Convolutions from N(0, 2 / fan-out), linear layers as :func:`draw_fan_in`; run k from child k of ``seed``."""
    draw_fan_in(module, seed, runs)
    convolutions = [layer for layer in module.modules() if isinstance(layer, Conv2d)]
    for run in range(runs):
        generator = run_generator(seed, run, stream=1)
        for layer in convolutions:
            values = torch.randn(layer.weight.shape[1:], generator=generator) * math.sqrt(2 / layer.fan_out)
            layer.weight[run] = values.to(layer.weight)


@dataclass(kw_only=True, eq=False, repr=False)
class ResNet18Classifier(NetworkClassifier):
    """``precision`` is ``"float32"`` or ``"bf16"``; other settings: see :class:`Network`.

    With ``"bf16"`` the images between the layers are bfloat16, which is several times faster on a GPU; weights,
    statistics and the last layer stay float32.

    A fit needs a hundred steps or more (rows / batch_size · epochs): before that the running statistics, with which it
    predicts, still lag behind the weights, however low the training loss is.
    """

    images = True

    precision: str = "float32"
    epochs: int = 30
    batch_size: int | None = 128
    lr: float = 1e-3
    weight_decay: float = 1e-4
    schedule: str = "cosine"
    scaling: str = "shared"

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> nn.Module:
        """The untrained module."""
        module = ResNet18(image_side(columns), outputs, runs, self.precision)
        draw_he(module, seed, runs)
        return module
