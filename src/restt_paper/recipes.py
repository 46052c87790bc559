"""Named ways to train a tensor train on images: the paper's, and ours beside it.

A recipe fixes everything but data set, fraction, bond dimension and seeds. Its settings are part of every result, so a
changed recipe is a new cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor, nn

from restt.module import ResTT
from restt.train import Augmentation, TrainConfig
from restt_paper import image_views
from restt_paper.cells import changed_since
from restt_paper.image_maps import SITE_MAPS
from restt_paper.site_orders import Walking

# Of results whose settings do not name them, see changed_since.
UNNAMED = {"moves": ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))}


@dataclass(frozen=True)
class Recipe:
    """A model and its training.

    Parameters
    ----------
    about : str
        What it is for, in a sentence.
    topology, init, sigma2
        The module's.
    sites : {"pixels", "patches", "products"}
        Means of 2×2 blocks (I = 2), the blocks themselves (I = 8), or all products of their four pixels (I = 16).
    angle : float
        Of the trigonometric map; the paper's is π/2.
    lr : float or None
        None: the best of the paper's three on held-out training images.
    training : dict
        What differs from :meth:`restt.train.TrainConfig.paper`.
    augment : dict or None
        Of :class:`restt.train.Augmentation`, on the 28×28 images.
    walks : bool
        Whether the runs see the sites in different orders, see :mod:`restt_paper.site_orders`.
    views : bool
        Whether outputs are also averaged over mirrored and moved images, see :mod:`restt_paper.image_views`.
    """

    about: str
    topology: str = "residual"
    init: str = "paper"
    sigma2: str | float = 0.01
    sites: str = "pixels"
    angle: float = math.pi / 2
    lr: float | None = None
    training: dict[str, Any] = field(default_factory=dict)
    augment: dict[str, Any] | None = None
    walks: bool = False
    views: bool = False

    def settings(self) -> dict[str, Any]:
        """Everything that fixes a result, as JSON values."""
        found = asdict(self)
        del found["about"]
        if self.views:
            found |= changed_since(UNNAMED, moves=image_views.MOVES)
        else:  # as in results from before there were any
            del found["views"]
        return found

    def feature_map(self) -> Callable[[Tensor], Tensor]:
        """From pixels (…, H·W) to site vectors."""
        return SITE_MAPS[self.sites](self.angle)

    def module(self, pixels: int, bond_dim: int, outputs: int, runs: int, seed: int, device: str) -> nn.Module:
        """``runs`` models with weights from the children of ``seed``."""
        width = SITE_MAPS[self.sites].width
        module = ResTT(
            pixels // 4,
            width,
            bond_dim,
            outputs,
            self.topology,
            init=self.init,
            sigma2=self.sigma2,
            runs=runs,
            device=device,
        )
        module.reset_parameters(seed=seed)
        return Walking(module) if self.walks else module

    def config(self, **changes: Any) -> TrainConfig:
        """The training; ``changes`` (epochs, lr, seed) come last."""
        augment = None if self.augment is None else Augmentation(**self.augment)
        return TrainConfig.paper(**{**self.training, "augment": augment, **changes})


# What the paper leaves open, and all of ours, was found on images held out of the training sets.
RECIPES = {
    "restt": Recipe("The paper's recipe. σ_w² = 0.01 is what the authors' code has at r = 100 (std 0.01)."),
    "meantt": Recipe(
        "The paper's MeanTT: Gaussian cores with σ_w² = 1. With the paper's angle π/2 it learns the training images "
        "by heart; at 0.5 neighbouring images stay similar, see restt.baselines.meantt.",
        topology="plain",
        sigma2=1.0,
        angle=0.5,
        training={"schedule": "cosine"},
    ),
    "meantt-paper": Recipe(
        "MeanTT as the paper and its authors' code have it: σ_w² = 1, angle π/2, a constant rate of 1e-4.",
        topology="plain",
        sigma2=1.0,
        lr=1e-4,
    ),
    "tt": Recipe(
        "A plain tensor train that reaches what the paper reports: rotations as initial cores, a smaller angle.",
        topology="plain",
        init="orthogonal",
        sigma2="auto",
        angle=0.5,
        lr=3e-4,
        training={"schedule": "cosine"},
    ),
    "steady": Recipe(
        "The paper's recipe at its rate 1e-4, judged by a moving average of the weights over about eight epochs.",
        lr=1e-4,
        training={"ema": 0.999},
    ),
    "annealed": Recipe(
        "The paper's model and images; only the rate falls to zero, from 3e-4.",
        lr=3e-4,
        training={"schedule": "cosine"},
    ),
    "limited": Recipe(
        "For a part of the training images: the rate falls to zero from 1e-4, and one site in twenty is dropped.",
        lr=1e-4,
        training={"schedule": "cosine", "dropout": 0.05},
    ),
    "bent": Recipe(
        "For a part of Fashion-MNIST: images bent by less than a pixel, one site in ten dropped, the rate falling to "
        "zero.",
        lr=2e-4,
        training={"schedule": "cosine", "dropout": 0.1},
        augment={"shift": 0.5, "elastic": 0.7},
    ),
    "augmented": Recipe(
        "MNIST shifted, turned and scaled at random, the rate falling to zero; the models walk over the image in eight "
        "different ways, which makes the average better.",
        lr=5e-4,
        training={"schedule": "cosine"},
        augment={"shift": 2.0, "rotation": 9.0, "scale": 0.1},
        walks=True,
    ),
    "detailed": Recipe(
        "The same with 2×2 patches of the whole image as sites and all products of their pixels.",
        sites="products",
        lr=5e-4,
        training={"schedule": "cosine"},
        augment={"shift": 2.0, "rotation": 9.0, "scale": 0.1},
        walks=True,
    ),
    "few-labels": Recipe(
        "For 1 % of MNIST: bent images too, site dropout, small batches and many epochs.",
        lr=1e-3,
        training={"schedule": "cosine", "dropout": 0.2, "batch_size": 200},
        augment={"shift": 4.0, "rotation": 12.0, "scale": 0.15, "elastic": 1.2},
    ),
    "patches": Recipe(
        "For Fashion-MNIST: 2×2 patches of the whole image as sites by the paper's vector map, a constant rate, judged "
        "by a moving average of the weights.",
        sites="patches",
        lr=2e-4,
        training={"ema": 0.999},
    ),
    "products": Recipe(
        "For Fashion-MNIST: 2×2 patches of the whole image as sites, with all products of their pixels; images "
        "mirrored and shifted by up to a pixel, the rate falling to zero; eight different walks over the image. The "
        "views are the image itself, mirrored, and both moved by a pixel.",
        sites="products",
        lr=5e-4,
        training={"schedule": "cosine"},
        augment={"shift": 1.0, "flip": True},
        walks=True,
        views=True,
    ),
}
