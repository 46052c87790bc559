"""The paper's claims about stability (Sec. IV and V-B), by training: which σ_w² train, and how seeds vary."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from restt import data
from restt._errors import check_choice
from restt._files import write_json_atomic
from restt.features import Trigonometric
from restt.meanfield.trainability import train_over_sigma2
from restt.module import ResTT
from restt.provenance import provenance
from restt.reproduce.stability_tables import files, tables
from restt.topology import Topology
from restt.train import TrainConfig, train

__all__ = ["TITLE", "files", "run", "tables"]

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


def run(
    profile: str = "quick", output: str | PathLike[str] = "results/meanfield", device: str = "cpu"
) -> dict[str, Any]:
    """Train over σ_w² and over seeds, both topologies; returns what ``claims-stability-{profile}.json`` holds."""
    setting = SETTINGS[check_choice("profile", profile, SETTINGS)]
    images = data.load("mnist", fraction=setting.fraction, seed=SEED)
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    over_sigma2, over_seeds = [], []
    for preset in PRESETS:
        for bond_dim in setting.bond_dims:
            for lr in setting.rates:
                over_sigma2 += _over_sigma2(preset, bond_dim, lr, setting, images, device)
                over_seeds.append(_over_seeds(preset, bond_dim, lr, setting, images, device))
                print(preset, f"r={bond_dim}", f"lr={lr:g}", over_seeds[-1]["final_test_accuracy"], flush=True)
    command = f"restt reproduce claims-stability --profile {profile}"
    result = {
        "provenance": provenance(device, seed=SEED, command=command),
        "setting": asdict(setting),
        "sites": images.x_train.shape[1],
        "wall_seconds": round(time.perf_counter() - began, 1),
        "over_sigma2": over_sigma2,
        "over_seeds": over_seeds,
    }
    write_json_atomic(folder / f"claims-stability-{profile}.json", result)
    return result


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
