"""The synthetic figure (paper, Sec. V-A): RMSE by feature width d of ResTT, TT and LR."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from restt import data
from restt._common.errors import check_choice
from restt.data.synthetic import synthetic_weights
from restt.train.config import PAPER_BATCH, PAPER_EPOCHS, PAPER_RATES, PAPER_WEIGHT_DECAY
from restt_paper.engine.experiment import Context, Experiment, Result, Settings
from restt_paper.engine.store import Cell, Store
from restt_paper.engine.table import Table
from restt_paper.meanfield.plots import COLORS, picture
from restt_paper.synthetic.floor import feature_std, least_rmse, order_variances
from restt_paper.synthetic.tables import NAMES, Errors, claims, errors, in_target_units, summary
from restt_paper.synthetic.training import linear_regression, train_chains

TITLE = "Synthetic figure: RMSE by feature width d"
# Name in results files -> topology.
TOPOLOGIES = {"restt": "residual", "tt": "plain"}
MODELS = (*TOPOLOGIES, "lr")
# The paper's N(0, ·) gives a variance or a standard deviation; it does not say which.
READINGS = ("std", "variance")
# Of the picture, by number of rows.
LINES = ("-", (0, (5, 3)), ":")


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
    return [_cell(profile, *where, model) for where in _data_sets(profile) for model in MODELS]


def compute(settings: Settings, context: Context) -> Result:
    """All repeats of one model on one data set, at the rate that suits them best."""
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
            device=context.device,
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
    shown = [summary(found), errors(found), in_target_units(found)]
    # Few rows and epochs say nothing about the paper's claims.
    return [*shown, claims(found)] if profile == "paper" else shown


def pictures(store: Store, profile: str, folder: Path) -> list[Path]:
    """The figure, for both readings of N(0, ·)."""
    found = _read(store, profile)
    if not any(one.complete for one in found):
        return []
    return [_plot(found, folder / "fig-synthetic.png")]


def _read(store: Store, profile: str) -> list[Errors]:
    found = []
    for where in _data_sets(profile):
        files = {model: store.load(_cell(profile, *where, model)) for model in MODELS}
        results = {model: None if file is None else file["result"] for model, file in files.items()}
        found.append(Errors(*where, results))
    return found


def _data_sets(profile: str) -> Iterator[tuple[str, int, int]]:
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


def _plot(found: Sequence[Errors], path: Path) -> Path:
    """RMSE by d as in the paper, a column per reading of N(0, ·); below, in units of the target's spread."""
    path.parent.mkdir(parents=True, exist_ok=True)
    readings = sorted({one.reading for one in found})
    sizes = sorted({one.rows for one in found})
    with picture(path, 2, len(readings), sharex=True) as axes:
        for column, reading in enumerate(readings):
            for rows, line in zip(sizes, LINES, strict=False):
                for (model, label), color in zip(NAMES.items(), COLORS, strict=False):
                    chosen = [one for one in found if (one.reading, one.rows) == (reading, rows)]
                    points = [
                        (one.d, error, one.target_std)
                        for one in chosen
                        if (error := one.mean(model)) is not None and one.target_std is not None
                    ]
                    style = {"color": color, "linestyle": line, "marker": "o", "markersize": 3}
                    widths = [d for d, _, _ in points]
                    axes[0, column].plot(widths, [error for _, error, _ in points], label=f"{label}-{rows}", **style)
                    axes[1, column].plot(widths, [error / unit for _, error, unit in points], **style)
            axes[0, column].set_title(f"N(0, ·) gives the {reading}")
            axes[1, column].set_xlabel("feature width d")
            axes[0, column].legend(fontsize=8, frameon=False)
        axes[0, 0].set_ylabel("test RMSE")
        axes[1, 0].set_ylabel("test RMSE / std of y")
    return path


EXPERIMENT = Experiment("fig-synthetic", TITLE, cells, compute, tables, pictures)
