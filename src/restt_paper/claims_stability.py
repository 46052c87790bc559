"""The paper's claims about stability (Sec. IV and V-B), by training: which σ_w² train, and how seeds vary."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from restt import data
from restt._common.errors import check_choice
from restt.features import Trigonometric
from restt.module import ResTT
from restt.topology import Topology
from restt.train import TrainConfig, train
from restt_paper.cells import Cell
from restt_paper.stability_tables import stability_tables
from restt_paper.store import Store
from restt_paper.tables import Table
from restt_paper.trainability import train_over_sigma2

TITLE = "Which initialisations train, and how seeds vary"
SEED = 0
CLASSES = 10
PRESETS = ("plain", "residual")


@dataclass(frozen=True)
class Setting:
    """Sizes of the study; rates are the paper's choices (Sec. V)."""

    fraction: float  # of MNIST's training set
    bond_dims: tuple[int, ...]
    sigma2: tuple[float, ...]
    rates: tuple[float, ...]
    epochs: int
    batch_size: int
    seeds: int


SETTINGS = {
    "paper": Setting(
        0.1, (20, 100), (1e-4, 1e-3, 5e-3, 1e-2, 1e-1, 0.8, 0.9, 1.0, 1.1, 1.25), (1e-3, 1e-4), 100, 512, 10
    ),
    "quick": Setting(0.01, (10,), (1e-3, 1e-2, 1.0), (1e-3,), 3, 50, 2),
}


def cells(profile: str) -> list[Cell]:
    """One per topology, bond dimension and rate."""
    setting = asdict(SETTINGS[check_choice("profile", profile, SETTINGS)])
    bond_dims, rates = setting.pop("bond_dims"), setting.pop("rates")
    return [
        Cell(
            "claims-stability",
            f"{preset}-r{bond_dim}-lr{lr:g}",
            {"profile": profile, "topology": preset, "bond_dim": bond_dim, "lr": lr, **setting, "seed": SEED},
        )
        for preset in PRESETS
        for bond_dim in bond_dims
        for lr in rates
    ]


def compute(cell: Cell, store: Store) -> dict[str, Any]:
    """Train over σ_w² and over seeds."""
    settings = cell.settings
    setting = SETTINGS[settings["profile"]]
    images = data.load("mnist", fraction=setting.fraction, seed=SEED)
    what = settings["topology"], settings["bond_dim"], settings["lr"]
    return {
        "sites": images.x_train.shape[1],
        "over_sigma2": _over_sigma2(*what, setting, images, store.device),
        "over_seeds": _over_seeds(*what, setting, images, store.device),
    }


def tables(store: Store, profile: str) -> list[Table]:
    """How seeds vary, which σ_w² train, and what becomes of the paper's claims about both."""
    return stability_tables([store.load(cell) for cell in cells(profile)])


def _over_sigma2(
    preset: str, bond_dim: int, lr: float, setting: Setting, images: data.Dataset, device: str
) -> list[dict[str, Any]]:
    topology = Topology.preset(preset, images.x_train.shape[1])
    accuracy = train_over_sigma2(
        topology,
        setting.sigma2,
        images.x_train,
        images.y_train,
        bond_dim=bond_dim,
        epochs=setting.epochs,
        lr=lr,
        batch_size=setting.batch_size,
        device=device,
        seed=SEED,
    )
    return [
        {
            "topology": preset,
            "bond_dim": bond_dim,
            "lr": lr,
            "sigma2": value,
            "final_training_accuracy": round(100 * curve[-1].item(), 2),
            "best_training_accuracy": round(100 * curve.max().item(), 2),
        }
        for value, curve in zip(setting.sigma2, accuracy, strict=True)
    ]


def _over_seeds(
    preset: str, bond_dim: int, lr: float, setting: Setting, images: data.Dataset, device: str
) -> dict[str, Any]:
    """Seeds side by side at the topology's own rule: σ_w² = 1 for TT (the paper's MeanTT), 1/(N-1) for ResTT."""
    sites = images.x_train.shape[1]
    module = ResTT(sites, 2, bond_dim, CLASSES, preset, init="paper", runs=setting.seeds, device=device)
    module.reset_parameters(seed=SEED)
    # No guard: the study is about what happens without help.
    config = TrainConfig.paper(
        epochs=setting.epochs, batch_size=setting.batch_size, lr=lr, max_failures=None, seed=SEED
    )
    curves: list[tuple[float, ...]] = []
    for record in train(
        module,
        images.x_train,
        images.y_train,
        config=config,
        validation=(images.x_test, images.y_test),
        feature_map=Trigonometric(),
    ):
        curves.append(record.validation["accuracy"])
    accuracy: Tensor = 100 * torch.tensor(curves, dtype=torch.float64).nan_to_num(1 / CLASSES)  # (epochs, S)
    return {
        "topology": preset,
        "bond_dim": bond_dim,
        "lr": lr,
        "final_test_accuracy": [round(value, 2) for value in accuracy[-1].tolist()],
        "mean": round(accuracy[-1].mean().item(), 2),
        "std": round(accuracy[-1].std().item(), 2),
        "mean_by_epoch": [round(value, 2) for value in accuracy.mean(1).tolist()],
        "std_by_epoch": [round(value, 2) for value in accuracy.std(1).tolist()],
    }
