"""The paper's claims about stability (Sec. IV and V-B), by training: which σ_w² train, and how seeds vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from restt.train.config import PAPER_WEIGHT_DECAY
from restt_paper.engine.cell import Cell
from restt_paper.engine.claim import RULE, Claim, claims_table, compare_spreads, judged
from restt_paper.engine.experiment import Context, Experiment, Result, Settings
from restt_paper.engine.store import Store
from restt_paper.engine.table import NOT_YET, Table, fixed, mean_std
from restt_paper.images.training import matmul_precision
from restt_paper.meanfield.sigma2_plane import train_over_sigma2

TITLE = "Which initialisations train, and how seeds vary"
# Topology -> name.
MODELS = {"plain": "TT (MeanTT)", "residual": "ResTT"}
SEEDS = "Stability: final test accuracy (%) over seeds, each model initialised by its own rule"
SEEDS_COLUMNS = ("model", "r", "rate", "mean ± std", "lowest seed", "highest seed")
TRAINED = "Stability: which σ_w² train"
TRAINED_COLUMNS = ("model", "r", "rate", "σ_w² that train", "σ_w² that do not")
CLAIMS = "Stability: the paper's claims"
# The paper's σ_w² ≪ 1 in numbers: its own code has standard deviation 0.01, this study goes up to 0.01 in σ_w².
SMALL_SIGMA2 = 0.01

# A mean test accuracy below this, twice that of guessing, is no training.
UNTRAINED = 20.0

TT_TRAINS = "TT trains stably where σ_w² E Σx² = 1 (Sec. IV-A)"
RESTT_TRAINS = f"ResTT trains wherever σ_w² ≪ 1 (Sec. IV-B; here up to {SMALL_SIGMA2:g})"
RELAXED = "ResTT's condition is much more relaxed than TT's (Sec. IV-B)"
VARIES_LESS = "ResTT varies less over seeds than MeanTT (Sec. V-B)"


Row = Mapping[str, Any]
Model = tuple[str, str, str]  # name, r, rate
Trained = dict[Model, tuple[list[float], list[float]]]  # σ_w² that train, and that do not


@dataclass(frozen=True)
class Sizes:
    """Sizes of the study; rates are the paper's choices (Sec. V)."""

    fraction: float  # of MNIST's training set
    bond_dims: tuple[int, ...]
    sigma2: tuple[float, ...]
    rates: tuple[float, ...]
    epochs: int
    batch_size: int
    seeds: int
    weight_decay: float = PAPER_WEIGHT_DECAY
    matmul_precision: str = "high"  # as torch.set_float32_matmul_precision names it


SIZES = {
    "paper": Sizes(
        0.1, (20, 100), (1e-4, 1e-3, 5e-3, 1e-2, 1e-1, 0.8, 0.9, 1.0, 1.1, 1.25), (1e-3, 1e-4), 100, 512, 10
    ),
    "quick": Sizes(0.01, (10,), (1e-3, 1e-2, 1.0), (1e-3,), 3, 50, 2),
}


def cells(profile: str) -> list[Cell]:
    """One per topology, bond dimension and rate."""
    settings = asdict(SIZES[check_choice("profile", profile, SIZES)])
    bond_dims, rates = settings.pop("bond_dims"), settings.pop("rates")
    return [
        Cell(
            "claims-stability",
            f"{preset}-r{bond_dim}-lr{lr:g}",
            {"profile": profile, "topology": preset, "bond_dim": bond_dim, "lr": lr, **settings, "seed": 0},
        )
        for preset in MODELS
        for bond_dim in bond_dims
        for lr in rates
    ]


def compute(settings: Settings, context: Context) -> Result:
    """Train over σ_w² and over seeds."""
    images = data.load("mnist", fraction=settings["fraction"], seed=settings["seed"])
    with matmul_precision(settings["matmul_precision"], context.device):
        return {
            "sites": images.x_train.shape[1],
            "over_sigma2": _over_sigma2(settings, images, context.device),
            "over_seeds": _over_seeds(settings, images, context.device),
        }


def _over_sigma2(settings: Settings, images: data.Dataset, device: str) -> list[dict[str, Any]]:
    accuracy = train_over_sigma2(
        Topology.preset(settings["topology"], images.x_train.shape[1]),
        settings["sigma2"],
        images.x_train,
        images.y_train,
        bond_dim=settings["bond_dim"],
        epochs=settings["epochs"],
        lr=settings["lr"],
        batch_size=settings["batch_size"],
        device=device,
        seed=settings["seed"],
    )
    return [
        {
            "topology": settings["topology"],
            "bond_dim": settings["bond_dim"],
            "lr": settings["lr"],
            "sigma2": value,
            "final_training_accuracy": round(100 * curve[-1].item(), 2),
            "best_training_accuracy": round(100 * curve.max().item(), 2),
        }
        for value, curve in zip(settings["sigma2"], accuracy, strict=True)
    ]


def _over_seeds(settings: Settings, images: data.Dataset, device: str) -> dict[str, Any]:
    """Seeds side by side at the topology's own rule: σ_w² = 1 for TT (the paper's MeanTT), 1/(N-1) for ResTT."""
    sites, classes = images.x_train.shape[1], len(images.classes)
    preset, bond_dim, lr, seed = (settings[name] for name in ("topology", "bond_dim", "lr", "seed"))
    module = ResTT(sites, 2, bond_dim, classes, preset, init="paper", runs=settings["seeds"], device=device)
    module.reset_parameters(seed=seed)
    config = TrainConfig(
        rates="uniform",
        epochs=settings["epochs"],
        batch_size=settings["batch_size"],
        lr=lr,
        weight_decay=settings["weight_decay"],
        loss="mse",
        max_failures=None,  # no guard: the study is about what happens without help
        seed=seed,
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
    accuracy: Tensor = 100 * torch.tensor(curves, dtype=torch.float64).nan_to_num(1 / classes)  # (epochs, S)
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


def tables(store: Store, profile: str) -> list[Table]:
    """How seeds vary, which σ_w² train, and what becomes of the paper's claims about both."""
    return stability_tables([store.load(cell) for cell in cells(profile)])


def stability_tables(files: Sequence[Mapping[str, Any] | None]) -> list[Table]:
    """From the files of all cells: the claims compare them, so nothing is shown while one is missing."""
    found = [file for file in files if file is not None]
    if len(found) < len(files):
        return [
            Table(SEEDS, SEEDS_COLUMNS, ((NOT_YET,) * len(SEEDS_COLUMNS),)),
            Table(TRAINED, TRAINED_COLUMNS, ((NOT_YET,) * len(TRAINED_COLUMNS),)),
            claims_table(CLAIMS, [Claim(text) for text in (TT_TRAINS, RESTT_TRAINS, RELAXED, VARIES_LESS)]),
        ]
    settings = found[0]["settings"]
    over_sigma2 = [row for file in found for row in file["result"]["over_sigma2"]]
    over_seeds = [file["result"]["over_seeds"] for file in found]
    note = f"MNIST, {100 * settings['fraction']:g} % of the training data, {settings['epochs']} epochs, no guard."
    trained = _trained(over_sigma2)
    rows = [
        (*model, *(", ".join(f"{value:g}" for value in values) or "none" for values in groups))
        for model, groups in trained.items()
    ]
    means = (
        "One run for each σ_w²; it trains where the final training accuracy is above half of the study's best. MeanTT "
        f"here is as in the paper, with its angle π/2; below {UNTRAINED:g} %, twice what guessing gives, a spread says "
        "nothing."
    )
    return [
        Table(SEEDS, SEEDS_COLUMNS, tuple(_seeds(row) for row in over_seeds), (note,)),
        Table(TRAINED, TRAINED_COLUMNS, tuple(rows), (note, means)),
        claims_table(CLAIMS, _claims(trained, over_seeds), (note, means, RULE)),
    ]


def _model(row: Row) -> Model:
    return MODELS[row["topology"]], str(row["bond_dim"]), f"{row['lr']:g}"


def _seeds(row: Row) -> tuple[str, ...]:
    accuracy = row["final_test_accuracy"]
    return *_model(row), mean_std(accuracy), fixed(min(accuracy), 2), fixed(max(accuracy), 2)


def _trained(rows: Sequence[Row]) -> Trained:
    """By model, r and rate the σ_w² that train and those that do not."""
    best = max(row["final_training_accuracy"] for row in rows)
    groups: Trained = {}
    for row in rows:
        trains, fails = groups.setdefault(_model(row), ([], []))
        (trains if row["final_training_accuracy"] > best / 2 else fails).append(row["sigma2"])
    return groups


def _claims(trained: Trained, over_seeds: Sequence[Row]) -> list[Claim]:
    tt, restt = MODELS["plain"], MODELS["residual"]
    sizes = [model[1:] for model in trained if model[0] == tt]
    stuck = [f"r={r}, rate {lr}" for r, lr in sizes if 1.0 in trained[tt, r, lr][1]]
    outside = [
        f"r={r}, rate {lr}, σ_w² = {value:g}"
        for r, lr in sizes
        for value in trained[restt, r, lr][1]
        if value <= SMALL_SIGMA2
    ]
    counts = [(len(trained[restt, *size][0]), len(trained[tt, *size][0])) for size in sizes]
    seeds = {_model(row): row["final_test_accuracy"] for row in over_seeds}
    spreads = [
        compare_spreads(f"r = {r}, rate {lr}", seeds[restt, r, lr], seeds[tt, r, lr], UNTRAINED) for r, lr in sizes
    ]
    return [
        Claim(TT_TRAINS, _unless("it does not at", stuck), not stuck),
        Claim(RESTT_TRAINS, _unless("it does not at", outside), not outside),
        Claim(
            RELAXED,
            "values that train, one run each, ResTT : TT: "
            + ", ".join(f"{ours} : {theirs}" for ours, theirs in counts),
            all(ours > theirs for ours, theirs in counts),
        ),
        judged(VARIES_LESS, spreads),
    ]


def _unless(words: str, exceptions: Sequence[str]) -> str:
    return f"{words} " + "; ".join(exceptions) if exceptions else "without exception"


EXPERIMENT = Experiment("claims-stability", TITLE, cells, compute, tables)
