"""The plane of σ_w² and N: phases that theory predicts, and trainings measured on it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from restt import data
from restt._common.errors import check_int
from restt.features import Trigonometric
from restt.init.stability import Phase, SignalRange, StabilityWarning
from restt.init.variances import per_site, slopes
from restt.meanfield import signal_range
from restt.module import ResTT
from restt.topology import Topology
from restt.train import TrainConfig, train

# Tenfold steps in general, fine ones around the plain train's only stable value.
SIGMA2 = (1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 0.8, 0.9, 1.0, 1.05, 1.1, 1.25, 3.0, 10.0)
# Topology, init, title. Orthogonal cores come with balanced ends, so the Gaussian train is shown with both kinds.
PANELS = (
    ("plain", "paper", "TT"),
    ("plain", "balanced", "TT, balanced ends"),
    ("plain", "orthogonal", "TT, balanced ends, orthogonal cores"),
    ("residual", "paper", "ResTT"),
)


@dataclass(frozen=True)
class MapSizes:
    """Sizes of the trainings."""

    dataset: str
    rows: int
    pools: tuple[int, ...]  # sides of the pixel blocks that become one site
    bond_dim: int
    epochs: int
    lr: float = 1e-3
    batch_size: int = 50
    sigma2: tuple[float, ...] = SIGMA2
    panels: tuple[tuple[str, str, str], ...] = PANELS


MAP_SIZES = {
    # 1 % of MNIST and r = 20, where the paper reports an unstable MeanTT (Sec. V-B).
    "paper": MapSizes("mnist", 600, (7, 4, 2), 20, 40),
    "quick": MapSizes("digits", 300, (2, 1), 10, 20, lr=3e-3, sigma2=(1e-4, 1e-2, 0.1, 1.0, 10.0)),
}


@dataclass(frozen=True)
class PhaseDiagram:
    """The signal's change along chains of one preset, for every σ_w² and N of a grid."""

    preset: str
    sigma2: Tensor  # (K,), rows
    sites: Tensor  # (M,), columns
    log_change: Tensor  # (K, M), log of the variance after the inner sites over the one before

    def phase(self, row: int, column: int) -> Phase:
        """The phase of one point of the grid."""
        change = float(self.log_change[row, column])
        return SignalRange(max(change, 0.0), max(-change, 0.0)).phase


def phase_diagram(
    preset: str, sigma2: Sequence[float] | Tensor, sites: Sequence[int] | Tensor, second_moment: float = 1.0
) -> PhaseDiagram:
    """How much a preset's signal changes over its N-2 inner sites, for every σ_w² (K,) and N (M,) (paper, Sec. IV).

    >>> plain = phase_diagram("plain", [0.9, 1.0, 1.1], [20, 200])
    >>> [plain.phase(row, 1) for row in range(3)], plain.phase(0, 0)
    (['vanish', 'trainable', 'explode'], 'trainable')
    """
    values = per_site("sigma2", sigma2, len(sigma2))
    lengths = torch.tensor([check_int("sites", int(n), minimum=2) for n in sites])
    one_site = Topology.preset(preset, 3)
    moments = per_site("second_moment", second_moment, 3)
    gains = [slopes(one_site, 1, value.view(1), value.view(1), moments).log_gain[0] for value in values]
    change = torch.tensor(gains, dtype=torch.float64)[:, None] * (lengths - 2)
    return PhaseDiagram(preset, values, lengths, change)


def typical_log_decay(bond_dim: int) -> float:
    """Drift per site of the typical log q of a plain tensor train at s = 1: ψ(r/2) − log(r/2) ≈ −1/r.

    A Gaussian core multiplies the squared length by χ²_r/r: mean 1, but its logarithm has a negative mean, which adds
    up over the sites. The mean over runs stays; the median shrinks like exp(−N/r).

    >>> round(typical_log_decay(20), 4)
    -0.0508
    """
    half = torch.tensor(check_int("bond_dim", bond_dim, minimum=1) / 2, dtype=torch.float64)
    return float(torch.digamma(half)) - math.log(float(half))


# σ_w² (K,), N (K,) and score in 0…1 (K,) of measured trainings.
Points = tuple[Tensor, ...]


def trainability_map(settings: Mapping[str, Any], seed: int) -> tuple[list[dict[str, Any]], list[Points]]:
    """Train every point of a map; returns the measurements, and the points of each panel.

    Settings are those of :class:`MapSizes`.
    """
    images, labels = _images(settings, seed)
    chance = 1 / (int(labels.max()) + 1)
    names = ("bond_dim", "epochs", "lr", "batch_size")
    training = {name: settings[name] for name in names}
    cells: list[dict[str, Any]] = []
    points: list[Points] = []
    for preset, init, title in settings["panels"]:
        scores: list[tuple[float, int, float]] = []
        for pool in settings["pools"]:
            x = avg_pool2d(images.unsqueeze(1), pool).flatten(1)
            topology = Topology.preset(preset, x.shape[1])
            accuracy = train_over_sigma2(topology, settings["sigma2"], x, labels, init=init, seed=seed, **training)
            for sigma2, reached in zip(settings["sigma2"], accuracy[:, -1].tolist(), strict=True):
                # From 0, chance level, to 1; in single precision.
                score = ((torch.tensor(reached) - chance) / (1 - chance)).clamp(0, 1)
                scores.append((sigma2, topology.sites, float(score)))
                cells.append(
                    {
                        "model": title,
                        "sites": topology.sites,
                        "sigma2": sigma2,
                        "predicted": signal_range(topology, 1.0, sigma2).phase,
                        "training_accuracy": round(reached, 4),
                    }
                )
        points.append(torch.tensor(scores).unbind(1))
    return cells, points


def _images(settings: Mapping[str, Any], seed: int) -> tuple[Tensor, Tensor]:  # (M, side, side) in [0, 1], (M,)
    if settings["dataset"] == "digits":
        digits = data.load("digits")
        images = digits.x.float().view(len(digits.x), 8, 8)
        return images[: settings["rows"]] / images.max(), digits.y[: settings["rows"]]
    rows = data.load(settings["dataset"], preprocess="raw", fraction=settings["rows"] / 60_000, seed=seed)
    return rows.x_train.float() / 255, rows.y_train


def train_over_sigma2(
    topology: Topology,
    sigma2: Sequence[float],
    x: Tensor,  # (M, N), values in [0, 1]
    y: Tensor,  # (M,), classes
    *,
    bond_dim: int,
    epochs: int,
    lr: float,
    batch_size: int,
    init: str = "paper",
    seed: int = 0,
) -> Tensor:  # (S, epochs)
    """Training accuracy after every epoch of one model per σ_w², trained side by side under the trigonometric map.

    Run k starts with the k-th σ_w²; the noise it is scaled from is the same for all, so only σ_w² differs. Nothing
    rescues a run that explodes: it shows chance level from then on.
    """
    classes = int(y.max()) + 1
    sizes = topology.sites, 2, bond_dim, classes, topology
    module = ResTT(*sizes, init=init, runs=len(sigma2))
    with torch.no_grad(), warnings.catch_warnings(action="ignore", category=StabilityWarning):
        for slot, value in enumerate(sigma2):
            single = ResTT(*sizes, value, init=init)
            single.reset_parameters(seed=seed)
            for name, parameter in module.named_parameters():
                parameter[slot].copy_(single.get_parameter(name))
    config = TrainConfig(
        epochs=epochs, batch_size=batch_size, lr=lr, rates="uniform", loss="mse", max_failures=None, seed=seed
    )
    records = train(module, x, y, config=config, validation=(x, y), feature_map=Trigonometric())
    accuracy = torch.tensor([record.validation["accuracy"] for record in records], dtype=torch.float64).T
    return accuracy.where(accuracy.isfinite(), 1 / classes)
