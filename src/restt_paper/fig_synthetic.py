"""The synthetic figure (paper, Sec. V-A): RMSE by feature width d of ResTT, TT and LR."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from restt import data
from restt._common.errors import check_choice
from restt.data.synthetic import synthetic_weights
from restt.train.config import PAPER_BATCH, PAPER_EPOCHS, PAPER_RATES, PAPER_WEIGHT_DECAY
from restt_paper.cells import Cell
from restt_paper.store import Store
from restt_paper.synthetic_floor import feature_std, least_rmse, order_variances
from restt_paper.synthetic_reading import Case, read_case
from restt_paper.synthetic_tables import claims, errors, in_target_units
from restt_paper.synthetic_training import linear_regression, train_chains
from restt_paper.tables import Table

TITLE = "Synthetic figure: RMSE by feature width d"
# Name in results files -> topology.
TOPOLOGIES = {"restt": "residual", "tt": "plain"}
MODELS = (*TOPOLOGIES, "lr")
# The paper's N(0, ·) gives a variance or a standard deviation; it does not say which.
READINGS = ("std", "variance")


@dataclass(frozen=True)
class Sizes:
    """Sizes of a profile."""

    widths: tuple[int, ...]  # d
    rows: tuple[int, ...]
    test_rows: int
    repeats: int
    epochs: int
    bond_dim: int = 20
    batch_size: int = PAPER_BATCH
    validation_fraction: float = 0.1


SIZES = {
    "paper": Sizes((1, 10, 20, 30, 40), (10_000, 50_000), 10_000, 5, PAPER_EPOCHS),
    "quick": Sizes((1, 10), (2000,), 2000, 2, 20, batch_size=128),
}


def cells(profile: str) -> list[Cell]:
    """One per model, width, number of rows and reading of N(0, ·), the small ones first."""
    return [_cell(profile, *case, model) for case in _cases(profile) for model in MODELS]


def compute(cell: Cell, store: Store) -> dict[str, Any]:
    """All repeats of one model on one data set, at the rate that suits them best."""
    settings = cell.settings
    where = {"d": settings["d"], "spread": settings["reading"], "seed": settings["seed"]}
    dataset = data.load("synthetic", n_train=settings["rows"], n_test=settings["test_rows"], **where)
    if settings["model"] == "lr":
        result = linear_regression(dataset, settings["validation_fraction"])
    else:
        result = train_chains(
            dataset,
            TOPOLOGIES[settings["model"]],
            bond_dim=settings["bond_dim"],
            rates=settings["rates"],
            repeats=settings["repeats"],
            epochs=settings["epochs"],
            batch_size=settings["batch_size"],
            weight_decay=settings["weight_decay"],
            validation_fraction=settings["validation_fraction"],
            seed=settings["seed"],
            device=store.device,
        )
    weights = synthetic_weights(**where)
    std = feature_std(settings["reading"])
    return {
        **result,
        "target_std": float(dataset.y_test.double().std()),
        "order_variances": order_variances(weights, std),
        "least_rmse": least_rmse(settings["model"], weights, std, settings["bond_dim"]),
    }


def tables(store: Store, profile: str) -> list[Table]:
    """Errors, errors in units of the target's spread beside the smallest possible ones, and the paper's claims."""
    found = _read(store, profile)
    shown = [errors(found), in_target_units(found)]
    # Few rows and epochs say nothing about the paper's claims.
    return [*shown, claims(found)] if profile == "paper" else shown


def pictures(store: Store, profile: str, folder: Path) -> list[Path]:
    """The figure, for both readings of N(0, ·)."""
    from restt_paper.synthetic_plot import plot_errors

    found = _read(store, profile)
    if not any(case.complete for case in found):
        return []
    return [plot_errors(found, folder / "fig-synthetic.png")]


def _read(store: Store, profile: str) -> list[Case]:
    return [
        read_case(*case, {model: store.load(_cell(profile, *case, model)) for model in MODELS})
        for case in _cases(profile)
    ]


def _cases(profile: str) -> Iterator[tuple[str, int, int]]:
    """Reading, rows, d."""
    sizes = SIZES[check_choice("profile", profile, SIZES)]
    for rows in sizes.rows:
        for reading in READINGS:
            for d in sizes.widths:
                yield reading, rows, d


def _cell(profile: str, reading: str, rows: int, d: int, model: str) -> Cell:
    sizes = asdict(SIZES[profile])
    settings = {
        **{name: value for name, value in sizes.items() if name not in ("widths", "rows")},
        "profile": profile,
        "model": model,
        "reading": reading,
        "rows": rows,
        "d": d,
        "rates": PAPER_RATES,
        "weight_decay": PAPER_WEIGHT_DECAY,
        "seed": 0,
    }
    return Cell("fig-synthetic", f"{reading}-n{rows}-d{d}-{model}", settings)
