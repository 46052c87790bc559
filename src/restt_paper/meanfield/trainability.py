"""Trainings measured on the plane of σ_w² and N, over the phases that theory predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from restt import data
from restt.meanfield import signal_range
from restt.topology import Topology
from restt_paper.meanfield.phases import phase_diagram
from restt_paper.meanfield.plots import plot_phases
from restt_paper.meanfield.sigma2_plane import success, train_over_sigma2

# Tenfold steps in general, fine ones around the plain train's only stable value.
SIGMA2 = (1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 0.8, 0.9, 1.0, 1.05, 1.1, 1.25, 3.0, 10.0)
# Orthogonal cores come with balanced ends, so the Gaussian train is shown with both kinds of ends.
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
    panels: tuple[tuple[str, str, str], ...] = PANELS  # topology, init, title


MAP_SIZES = {
    # 1 % of MNIST and r = 20, where the paper finds MeanTT unstable (Sec. V-B).
    "paper": MapSizes("mnist", 600, (7, 4, 2), 20, 40),
    "quick": MapSizes("digits", 300, (2, 1), 10, 20, lr=3e-3, sigma2=(1e-4, 1e-2, 0.1, 1.0, 10.0)),
}


def trainability_map(settings: Mapping[str, Any], path: str | PathLike[str], seed: int) -> dict[str, Any]:
    """Train every point of a map, draw it, and return the measurements; settings are those of :class:`MapSizes`."""
    images, labels = _images(settings, seed)
    classes = int(labels.max()) + 1
    cells, points = [], []
    for preset, init, title in settings["panels"]:
        scores: list[tuple[float, int, float]] = []
        for pool in settings["pools"]:
            x = avg_pool2d(images.unsqueeze(1), pool).flatten(1)
            topology = Topology.preset(preset, x.shape[1])
            accuracy = train_over_sigma2(
                topology,
                settings["sigma2"],
                x,
                labels,
                bond_dim=settings["bond_dim"],
                epochs=settings["epochs"],
                lr=settings["lr"],
                batch_size=settings["batch_size"],
                init=init,
                seed=seed,
            )[:, -1]
            for sigma2, reached in zip(settings["sigma2"], accuracy.tolist(), strict=True):
                scores.append((sigma2, topology.sites, float(success(torch.tensor(reached), classes))))
                cells.append(
                    {
                        "model": title,
                        "sites": topology.sites,
                        "sigma2": sigma2,
                        "predicted": signal_range(topology, 1.0, sigma2).phase,
                        "training_accuracy": round(reached, 4),
                    }
                )
        points.append(_columns(scores))
    grid = torch.logspace(-4.6, 1.3, 160, dtype=torch.float64)
    lengths = torch.logspace(0.5, 3, 120).round().int().unique()
    diagrams = [phase_diagram(preset, grid, lengths) for preset, _, _ in settings["panels"]]
    plot_phases(diagrams, path, success=points, titles=[title for _, _, title in settings["panels"]])
    return {"cells": cells}


def _columns(scores: Sequence[tuple[float, int, float]]) -> tuple[Tensor, Tensor, Tensor]:
    sigma2, sites, reached = zip(*scores, strict=True)
    return torch.tensor(sigma2), torch.tensor(sites), torch.tensor(reached)


def _images(settings: Mapping[str, Any], seed: int) -> tuple[Tensor, Tensor]:  # (M, side, side) in [0, 1], (M,)
    if settings["dataset"] == "digits":
        digits = data.load("digits")
        images = digits.x.float().view(len(digits.x), 8, 8)
        return images[: settings["rows"]] / images.max(), digits.y[: settings["rows"]]
    rows = data.load(settings["dataset"], preprocess="raw", fraction=settings["rows"] / 60_000, seed=seed)
    return rows.x_train.float() / 255, rows.y_train
