"""LeNet-5: two convolutions with average pooling, then fully connected layers.

Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-based learning applied to document recognition" (1998), as
the paper describes it (two sets of convolution and average pooling, two fully connected layers, softmax):

    28×28 (padded to 32×32) → 6 maps by 5×5 → pool 2×2 → 16 maps by 5×5 → pool 2×2 → 120 → 84 → classes

61 706 weights for ten classes. Where this differs from 1998: every map of the second convolution sees all six below it,
the pooling has no weights of its own, and the last layer is a softmax instead of distances to fixed codes. The
activation, after each convolution and each hidden layer, is ReLU: trained as here it does better than the original's
tanh, which ``activation="tanh"`` gives. Images of another size are resized to 28×28 by bilinear interpolation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from restt._common.errors import check_choice
from restt_baselines.network import NetworkClassifier
from restt_baselines.networks.layers import Conv2d, Linear, as_images, draw_fan_in, image_side

TASKS = ("classification",)

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
        module = LeNet5(image_side(columns), outputs, runs, self.activation)
        draw_fan_in(module, seed, runs)
        return module


def make(task: str, **params: Any) -> LeNet5Classifier:
    """The estimator.

    >>> make("classification", epochs=10).build(64, 10, runs=3, seed=0)(torch.zeros(5, 64)).shape
    torch.Size([3, 5, 10])
    """
    return LeNet5Classifier(**params)
