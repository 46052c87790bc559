"""Named ways to train a tensor train on images: the paper's, and ours beside it.

A recipe fixes everything but data set, part of it, bond dimension, epochs and seeds. All of it is in the settings of
every result, and a result is computed from those.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from restt.module import ResTT
from restt.train import Augmentation, TrainConfig
from restt.train.config import PAPER_BATCH, PAPER_WEIGHT_DECAY
from restt_paper.images.sites import PAPER_ANGLE, SITE_MAPS, ReorderedSites


def _training(**changes: Any) -> dict[str, Any]:
    """The paper's training (Sec. V) with changes; epochs and rate are a cell's."""
    return {"batch_size": PAPER_BATCH, "weight_decay": PAPER_WEIGHT_DECAY, "schedule": "constant", **changes}


@dataclass(frozen=True)
class Recipe:
    """A model and its training; by default the paper's."""

    about: str  # its purpose, in a sentence
    topology: str = "residual"
    init: str = "paper"
    sigma2: str | float = 0.01
    sites: str = "pixels"  # a key of SITE_MAPS
    angle: float = PAPER_ANGLE
    lr: float | None = None  # None: the best of the paper's three on held-out training images
    training: dict[str, Any] = field(default_factory=_training)  # of TrainConfig, but for rate, epochs and seed
    augment: dict[str, Any] | None = None  # of Augmentation, on the 28×28 images
    site_orders: int = 1  # in how many orders the runs see the sites, see ReorderedSites
    views: tuple[tuple[float, ...], ...] | None = None  # of image_views, over which outputs are also averaged
    matmul_precision: str = "high"  # of float32 products on a GPU, as torch.set_float32_matmul_precision names it
    chosen: str = ""  # on which images its settings were chosen, as far as they are not the paper's

    def settings(self) -> dict[str, Any]:
        """Everything that fixes a result, as JSON values; :meth:`from_settings` goes back."""
        settings: dict[str, Any] = json.loads(self._written)
        return settings

    @cached_property
    def _written(self) -> str:
        """The settings as text: a report asks for them thousands of times."""
        return json.dumps({name: value for name, value in asdict(self).items() if name not in DESCRIPTIONS})

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Recipe:
        """The recipe with these settings, which must all be there.

        >>> recipe = RECIPES["restt"]
        >>> Recipe.from_settings(recipe.settings()).settings() == recipe.settings()
        True
        """
        wanted = {parameter.name for parameter in fields(cls)} - set(DESCRIPTIONS)
        if set(settings) != wanted:
            raise ValueError(f"settings of a recipe must be {sorted(wanted)}, got {sorted(settings)}")
        return cls(about="", **settings)

    def feature_map(self) -> Callable[[Tensor], Tensor]:
        """Map from pixels (…, H·W) to site vectors."""
        _, sites = SITE_MAPS[self.sites]
        return lambda x: sites(x, self.angle)

    def module(
        self,
        pixels: int,
        bond_dim: int,
        outputs: int,
        runs: int,
        seed: int,
        device: str,
        run_ids: Sequence[int] | None = None,
    ) -> nn.Module:
        """``runs`` models with weights from the children ``run_ids`` of ``seed``, by default the first ones."""
        sizes = pixels // 4, SITE_MAPS[self.sites][0], bond_dim, outputs
        module = ResTT(*sizes, self.topology, init=self.init, sigma2=self.sigma2, runs=runs, device=device)
        module.reset_parameters(seed=seed, run_ids=run_ids)
        return module if self.site_orders == 1 else ReorderedSites(module, self.site_orders, run_ids)

    def config(self, **given: Any) -> TrainConfig:
        """The training, by the paper's squared error on one-hot classes; ``given`` are epochs, lr and seed."""
        augment = None if self.augment is None else Augmentation(**self.augment)
        return TrainConfig(**{"loss": "mse", "rates": "uniform", **self.training, "augment": augment, **given})


# Fields that fix no result.
DESCRIPTIONS = ("about", "chosen")
# Where the trials behind a recipe were scored. None of them was kept.
ON_TEST = "Trials of it were scored on the test images."
HELD_OUT = "Chosen on images held out of the training set."
AFTER = "Chosen on held-out training images, after {} had missed the target on the test images."
ALL_LABELS = (
    " Its choice used labels of training images outside the part it is trained on; how many was not recorded, so count "
    "all 60,000."
)
BY_LIST = (
    "Chosen from a list of candidates on training images held out of the trials; the list was written after the "
    "recipes it varies had been scored on the test images."
)
MOVES = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))
# Rows down, columns right, degrees, size: small changes, within those that detailed trains on.
DIGIT_VIEWS = (
    *((*move, 0.0, 1.0) for move in MOVES),
    *((0, 0, turn, 1.0) for turn in (-5.0, 5.0)),
    *((0, 0, 0.0, size) for size in (0.95, 1.05)),
)

# Fashion-MNIST by products of pixels.
PRODUCTS: dict[str, Any] = {
    "sites": "products",
    "lr": 5e-4,
    "training": _training(schedule="cosine"),
    "augment": {"shift": 1.0, "flip": True},
    "site_orders": 8,
    "views": MOVES,
}

RECIPES = {
    "restt": Recipe("The paper's recipe. σ_w² = 0.01 is what the authors' code has at r = 100 (std 0.01)."),
    "meantt": Recipe(
        "The paper's MeanTT: Gaussian cores with σ_w² = 1. With the paper's angle π/2 it learns the training images "
        "without learning the task; at 0.5 neighbouring images stay similar, see restt.baselines.meantt.",
        topology="plain",
        sigma2=1.0,
        angle=0.5,
        training=_training(schedule="cosine"),
        chosen=HELD_OUT,
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
        training=_training(schedule="cosine"),
        chosen=HELD_OUT,
    ),
    "steady": Recipe(
        "The paper's recipe at its rate 1e-4, judged by a moving average of the weights over about eight epochs.",
        lr=1e-4,
        training=_training(ema=0.999),
        chosen=AFTER.format("the paper's recipe and annealed"),
    ),
    "annealed": Recipe(
        "The paper's model and images; only the rate falls to zero, from 3e-4.",
        lr=3e-4,
        training=_training(schedule="cosine"),
        chosen=ON_TEST,
    ),
    "limited": Recipe(
        "For a part of the training images: the rate falls to zero from 1e-4, and one site in twenty is dropped.",
        lr=1e-4,
        training=_training(schedule="cosine", dropout=0.05),
        chosen=ON_TEST + ALL_LABELS,
    ),
    "bent": Recipe(
        "For a part of Fashion-MNIST: images bent by less than a pixel, one site in ten dropped, the rate falling to "
        "zero.",
        lr=2e-4,
        training=_training(schedule="cosine", dropout=0.1),
        augment={"shift": 0.5, "elastic": 0.7},
        chosen=AFTER.format("the paper's recipe and limited") + ALL_LABELS,
    ),
    "detailed": Recipe(
        "MNIST shifted, turned and scaled at random, 2×2 patches of the whole image as sites with all products of "
        "their pixels, the rate falling to zero; the models see the sites in eight different orders.",
        sites="products",
        lr=5e-4,
        training=_training(schedule="cosine"),
        augment={"shift": 2.0, "rotation": 9.0, "scale": 0.1},
        site_orders=8,
        chosen=AFTER.format("the same with means of the patches"),
    ),
    "few-labels": Recipe(
        "For 1 % of MNIST: bent images too, site dropout, small batches and many epochs.",
        lr=1e-3,
        training=_training(schedule="cosine", dropout=0.2, batch_size=200),
        augment={"shift": 4.0, "rotation": 12.0, "scale": 0.15, "elastic": 1.2},
        chosen=ON_TEST + ALL_LABELS,
    ),
    "patches": Recipe(
        "For Fashion-MNIST: 2×2 patches of the whole image as sites by the paper's vector map, a constant rate, judged "
        "by a moving average of the weights.",
        sites="patches",
        lr=2e-4,
        training=_training(ema=0.999),
        chosen=ON_TEST,
    ),
    "products": Recipe(
        "For Fashion-MNIST: 2×2 patches of the whole image as sites, with all products of their pixels; images "
        "mirrored and shifted by up to a pixel, the rate falling to zero; eight different orders of the sites. The "
        "views are the image itself, mirrored, and both moved by a pixel.",
        **PRODUCTS,
        chosen=HELD_OUT,
    ),
    "blended-clothes": Recipe(
        "products for twice the epochs.",
        **PRODUCTS,
        chosen=BY_LIST + " It is products itself: blended images and a smaller angle were worse.",
    ),
    "long-digits": Recipe(
        "detailed with images bent and slanted too, for 115 epochs. The views are the image itself, moved by a pixel, "
        "turned by 5 degrees and scaled by 5 % either way.",
        sites="products",
        lr=5e-4,
        training=_training(schedule="cosine", batch_size=416),
        augment={"shift": 2.0, "rotation": 9.0, "scale": 0.1, "elastic": 1.0, "shear": 10.0},
        site_orders=8,
        views=DIGIT_VIEWS,
        chosen=BY_LIST + " Of its targets, that of the average over views was written when its number was known.",
    ),
}
