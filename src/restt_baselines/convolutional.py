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

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from restt._common.errors import check_choice
from restt_baselines.layers import SideBySide, image_side
from restt_baselines.network import NetworkClassifier

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}
SIDE = 28
# LeCun et al., Sec. II-B: maps of C1 and C3, units of C5 and F6.
MAPS = (6, 16)
HIDDEN = (120, 84)


def lenet5(side: int, outputs: int, activation: str) -> nn.Sequential:
    """The network, from rows of pixels of square images of ``side`` × ``side``."""
    act = ACTIVATIONS[check_choice("activation", activation, ACTIVATIONS)]
    first, second = MAPS
    return nn.Sequential(
        nn.Unflatten(1, (1, side, side)),
        nn.Upsample((SIDE, SIDE), mode="bilinear") if side != SIDE else nn.Identity(),
        *(nn.Conv2d(1, first, 5, padding=2), act(), nn.AvgPool2d(2)),
        *(nn.Conv2d(first, second, 5), act(), nn.AvgPool2d(2), nn.Flatten()),
        *(nn.Linear(second * 5 * 5, HIDDEN[0]), act(), nn.Linear(*HIDDEN), act()),
        nn.Linear(HIDDEN[1], outputs),
    )


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
        return SideBySide(partial(lenet5, image_side(columns), outputs, self.activation), runs, seed)


# He et al., Table 1.
CHANNELS = (64, 128, 256, 512)
BLOCKS = 2
MOMENTUM = 0.1  # of the running statistics

PRECISIONS = ("float32", "bf16")


class BatchNorm2d(nn.BatchNorm2d):
    """torch's own, but where a batch has one value per channel, its variance unknown, running statistics stand in.

    Runs of :func:`restt.train.train` whose subsets differ in size see rows that only fill up the batch, and these count
    in the statistics: give such runs subsets of one size.
    """

    def forward(self, x: Tensor) -> Tensor:  # (B, C, H, W)
        """Normalise; in training mode the running statistics are updated in place."""
        of_batch = self.training and x.numel() > x.shape[1]
        statistics = self.running_mean, self.running_var
        return F.batch_norm(x, *statistics, self.weight, self.bias, of_batch, MOMENTUM, self.eps)


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """A convolution with its batch norm; He's normal weights."""
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    norm = BatchNorm2d(outputs)
    norm.num_batches_tracked = None
    return nn.Sequential(convolution, norm)


class Block(nn.Module):
    """relu(x + bn(conv(relu(bn(conv(x))))))."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        first, second = _convolution(inputs, outputs, 3, stride), _convolution(outputs, outputs, 3)
        self.body = nn.Sequential(first, nn.ReLU(), second)
        self.skip = nn.Identity() if stride == 1 else _convolution(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:  # (B, C, H, W) -> (B, C', H', W')
        """Maps of the block."""
        return (self.body(x) + self.skip(x)).relu()


class ResNet18(nn.Module):
    """The network, from rows of pixels of square images of ``side`` × ``side``."""

    def __init__(self, side: int, outputs: int, precision: str) -> None:
        super().__init__()
        self.side = side
        self.precision = check_choice("precision", precision, PRECISIONS)
        stem, *_ = CHANNELS
        blocks = [
            Block(width, channels)
            for before, channels in pairwise((stem, *CHANNELS))
            for width in (before, *[channels] * (BLOCKS - 1))
        ]
        self.maps = nn.Sequential(_convolution(1, stem, 3), nn.ReLU(), *blocks)
        self.head = nn.Linear(CHANNELS[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:  # (B, P) -> (B, O)
        """Outputs of every row."""
        images = x.view(-1, 1, self.side, self.side).contiguous(memory_format=torch.channels_last)
        lowered = self.precision == "bf16"
        with torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False) if lowered else nullcontext():
            maps = self.maps(images)
        return self.head(maps.mean((2, 3), dtype=x.dtype))


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
        return SideBySide(partial(ResNet18, image_side(columns), outputs, self.precision), runs, seed)
