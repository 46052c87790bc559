"""The synthetic figure (paper, Sec. V-A): RMSE by feature width d of ResTT, TT and LR."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from restt import data
from restt._common.errors import check_choice
from restt.data.synthetic import synthetic_weights
from restt.train.config import PAPER_BATCH, PAPER_EPOCHS, PAPER_RATES, PAPER_WEIGHT_DECAY
from restt_paper.experiments import Cell, Context, Experiment, Result, Settings, Store
from restt_paper.meanfield.plots import COLORS, picture
from restt_paper.synthetic_training import feature_std, least_rmse, linear_regression, order_variances, train_chains
from restt_paper.table import NOT_YET, Table, fixed
from restt_paper.verdict import RULE, Claim, Comparison, Outcome, claims_table, judged, larger

TITLE = "Synthetic figure: RMSE by feature width d"
# Name in results files -> label, and topology.
NAMES = {"restt": "ResTT", "tt": "TT", "lr": "LR"}
TOPOLOGIES = {"restt": "residual", "tt": "plain"}
# Least squares has no initialisation to repeat: its error is one number.
EXACT = "lr"
REVERSED: Mapping[Outcome, Outcome] = {"yes": "no", "no": "yes", "tie": "tie"}
WHERE = ("N(0, ·) gives the", "training rows", "d")
# Repeats share one data set, so their spread leaves out that of its rows: differences below this share of the target's
# standard deviation decide nothing.
NEGLIGIBLE = 0.01
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
    return [_cell(profile, *where, model) for where in _data_sets(profile) for model in NAMES]


def compute(settings: Settings, context: Context) -> Result:
    """All repeats of one model on one data set, at the rate that suits them best."""
    where = {"d": settings["d"], "spread": settings["reading"], "seed": settings["seed"]}
    dataset = data.load("synthetic", n_train=settings["rows"], n_test=settings["test_rows"], **where)
    if settings["model"] == "lr":
        result = linear_regression(dataset, settings["validation_fraction"])
    else:
        names = ("bond_dim", "rates", "repeats", "epochs", "batch_size", "weight_decay", "validation_fraction", "seed")
        training = {name: settings[name] for name in names}
        result = train_chains(dataset, TOPOLOGIES[settings["model"]], device=context.device, **training)
    weights = synthetic_weights(**where)
    std = feature_std(settings["reading"])
    return {
        **result,
        "target_std": float(dataset.y_test.double().std()),
        "order_variances": order_variances(weights, std),
        "least_rmse": least_rmse(settings["model"], weights, std, settings["bond_dim"]),
    }


def tables(store: Store, profile: str) -> list[Table]:
    """Errors in units of the target's spread, and beside the smallest possible ones."""
    measured = _read(store, profile)
    return [summary(measured), in_target_units(measured)]


def pictures(store: Store, profile: str, folder: Path) -> list[Path]:
    """The figure, for both readings of N(0, ·)."""
    measured = _read(store, profile)
    complete = any(None not in errors.results.values() for errors in measured)
    return [_plot(measured, folder / "fig-synthetic.png")] if complete else []


def _read(store: Store, profile: str) -> list[Errors]:
    measured = []
    for where in _data_sets(profile):
        files = {model: store.load(_cell(profile, *where, model)) for model in NAMES}
        results = {model: None if file is None else file["result"] for model, file in files.items()}
        measured.append(Errors(*where, results))
    return measured


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


@dataclass(frozen=True)
class Errors:
    """Results of all models on one data set: N(0, ·) read as ``reading``, training rows, d, and each model's result."""

    reading: str
    rows: int
    d: int
    results: Mapping[str, Mapping[str, Any] | None]  # None where it is missing

    def __getitem__(self, model: str) -> Mapping[str, Any]:
        """The model's result, which must be there."""
        result = self.results[model]
        assert result is not None
        return result

    @property
    def name(self) -> str:
        """The data set in words."""
        return f"d = {self.d} ({self.reading}, {self.rows} rows)"

    @property
    def where(self) -> tuple[str, str, str]:
        """Reading, rows and d as text."""
        return self.reading, str(self.rows), str(self.d)

    @property
    def target_std(self) -> float | None:
        """Standard deviation of the test targets, the error of a model that answers 0; None without results."""
        stds = [float(result["target_std"]) for result in self.results.values() if result is not None]
        return stds[0] if stds else None

    def mean(self, model: str, kind: str = "selected") -> float | None:
        """Mean error over repeats, in units of y; None where one of them failed or all are still missing."""
        result = self.results[model]
        return None if result is None or None in result[kind] else statistics.fmean(result[kind])

    def least(self, model: str) -> float:
        """The smallest error the model can have, in units of the target's standard deviation over all rows."""
        result = self[model]
        return float(result["least_rmse"]) / math.sqrt(sum(result["order_variances"]))

    def verdict(self, better: str, worse: str) -> Outcome:
        """Whether ``better`` has the smaller selected error.

        >>> measured = {"restt": [0.5, 0.6], "lr": [0.51]}
        >>> results = {name: {"selected": errors, "target_std": 1.0} for name, errors in measured.items()}
        >>> Errors("std", 100, 1, results).verdict("restt", "lr")
        'tie'
        """
        if self.mean(better) is None or self.mean(worse) is None:
            return "not yet"
        ours, theirs = self[better]["selected"], self[worse]["selected"]
        unit = self.target_std
        if unit and abs(statistics.fmean(ours) - statistics.fmean(theirs)) < NEGLIGIBLE * unit:
            return "tie"
        if worse == EXACT:
            return REVERSED[larger(ours, theirs[0])]
        return larger(theirs, ours[0] if better == EXACT else ours)

    def leads(self, better: str, worse: str) -> list[float] | None:
        """Lead of ``better`` in units of y, repeat by repeat, which begin alike; None where unknown."""
        if self.mean(better) is None or self.mean(worse) is None:
            return None
        ours, theirs = self[better]["selected"], self[worse]["selected"]
        return [them - us for us, them in zip(ours, theirs * len(ours) if worse == EXACT else theirs, strict=True)]

    def in_units(self, model: str) -> str:
        """The selected error in units of the target's spread, as text."""
        unit, error = self.target_std, self.mean(model)
        if self.results[model] is None or unit is None:
            return NOT_YET
        return fixed(None if error is None else error / unit, 3)


def in_target_units(measured: Sequence[Errors]) -> Table:
    """The selected errors in units of the target's spread, the smallest possible ones, and the paper's order."""
    pairs = (("restt", "tt"), ("tt", "lr"), ("restt", "lr"))
    columns = (
        *WHERE,
        "share of orders 1, 2, 3",
        *NAMES.values(),
        *(f"least possible {name}" for name in NAMES.values()),
        *(f"{NAMES[first]} < {NAMES[second]}" for first, second in pairs),
    )
    rows = []
    for case in measured:
        least = [NOT_YET if case.results[model] is None else fixed(case.least(model), 3) for model in NAMES]
        verdicts = [case.verdict(*pair) for pair in pairs]
        rows.append((*case.where, _shares(case), *map(case.in_units, NAMES), *least, *verdicts))
    notes = (
        "A tenth of the training rows is held out: the rate is the one of the paper's three with the lowest error on "
        "them, the selected epoch likewise. Errors are means over initialisations on the same data; LR has none.",
        "1 is what a model that always answers 0 has. The least possible error follows from the true weights and is a "
        "mean over all rows there could be, so a test set may be a little below it: LR lacks orders 2 and 3, TT orders "
        "1 and 2, and r may be too small for the order-3 tensor (for ResTT a bound that need not be reached).",
        f"{RULE} The repeats share one data set, so here a difference below {NEGLIGIBLE:g} is a tie too.",
    )
    return Table("Synthetic figure: selected RMSE / std of y", columns, tuple(rows), notes, details=True)


def _shares(case: Errors) -> str:
    variances = next((result["order_variances"] for result in case.results.values() if result is not None), None)
    if variances is None:
        return NOT_YET
    return ", ".join(f"{fixed(100 * part / sum(variances), 0)} %" for part in variances)


def summary(measured: Sequence[Errors]) -> Table:
    """Selected errors in units of the target's spread, one row per reading of N(0, ·) and number of rows."""
    rows = []
    for (reading, count), group in groupby(measured, key=lambda case: (case.reading, case.rows)):
        entries = [" / ".join(case.in_units(model) for model in NAMES) for case in group]
        rows.append((reading, str(count), *entries))
    columns = (*WHERE[:2], *(f"d = {d}" for d in _widths(measured)))
    note = "ResTT / TT / LR; 1 is the error of a model that always answers 0."
    return Table("Synthetic figure: RMSE / std of y", columns, tuple(rows), (note,))


def claims(store: Store) -> Table:
    """The paper's sentences (Sec. V-A), each over all data sets."""
    measured = _read(store, "paper")
    checked = []
    for better, worse in (("tt", "lr"), ("restt", "tt")):
        comparisons = [Comparison(case.name, case.verdict(better, worse)) for case in measured]
        checked.append(judged(f"{NAMES[better]} performs better than {NAMES[worse]}", comparisons))
    checked += [_growth_claim(worse, measured) for worse in ("tt", "lr")]
    return claims_table("Synthetic figure", checked, ("By the selected errors.", RULE))


def _growth_claim(worse: str, measured: Sequence[Errors]) -> Claim:
    text = f"the lead of ResTT over {NAMES[worse]} grows with d"
    parts, steps = [], []
    for (reading, rows), group in groupby(measured, key=lambda case: (case.reading, case.rows)):
        curve = [case.leads("restt", worse) for case in group]
        known = [leads for leads in curve if leads is not None]
        if len(known) < len(curve):
            return Claim(text)
        parts.append(f"{reading}, {rows} rows: " + " ".join(f"{statistics.fmean(leads):.3g}" for leads in known))
        steps += [larger(after, before) for before, after in pairwise(known)]
    widths = ", ".join(str(d) for d in _widths(measured))
    shown = f"in {steps.count('yes')} of {len(steps)} steps; lead in units of y at d = {widths}: {'; '.join(parts)}"
    return Claim(text, shown, all(step == "yes" for step in steps))


def _widths(measured: Iterable[Errors]) -> list[int]:
    return sorted({case.d for case in measured})


def _plot(measured: Sequence[Errors], path: Path) -> Path:
    """RMSE by d as in the paper, a column per reading of N(0, ·); below, in units of the target's spread."""
    path.parent.mkdir(parents=True, exist_ok=True)
    readings = sorted({case.reading for case in measured})
    sizes = sorted({case.rows for case in measured})
    with picture(path, 2, len(readings), sharex=True) as axes:
        for column, reading in enumerate(readings):
            for rows, line in zip(sizes, LINES, strict=False):
                for (model, label), color in zip(NAMES.items(), COLORS, strict=False):
                    chosen = [case for case in measured if (case.reading, case.rows) == (reading, rows)]
                    points = [
                        (case.d, error, case.target_std)
                        for case in chosen
                        if (error := case.mean(model)) is not None and case.target_std is not None
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


EXPERIMENT = Experiment("fig-synthetic", TITLE, cells, compute, tables, claims, pictures)
