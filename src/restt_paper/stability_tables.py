"""Tables of ``claims-stability``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from restt_paper.claims import Claim, claims_table
from restt_paper.tables import NOT_YET, Table, mean_std

MODELS = {"plain": "TT (MeanTT)", "residual": "ResTT"}
SEEDS = "Stability: final test accuracy (%) over seeds, each model initialised by its own rule"
SEEDS_COLUMNS = ("model", "r", "rate", "mean ± std", "lowest seed", "highest seed")
TRAINED = "Stability: which σ_w² train"
TRAINED_COLUMNS = ("model", "r", "rate", "σ_w² that train", "σ_w² that do not")
CLAIMS = "Stability: the paper's claims"
# The paper's σ_w² ≪ 1 in numbers: its own code has standard deviation 0.01, this study goes up to 0.01 in σ_w².
SMALL_SIGMA2 = 0.01

TT_TRAINS = "TT trains stably where σ_w² E Σx² = 1 (Sec. IV-A)"
RESTT_TRAINS = f"ResTT trains wherever σ_w² ≪ 1 (Sec. IV-B; here up to {SMALL_SIGMA2:g})"
RELAXED = "ResTT's condition is much more relaxed than TT's (Sec. IV-B)"
VARIES_LESS = "ResTT varies less over seeds than MeanTT (Sec. V-B)"

Row = Mapping[str, Any]


def stability_tables(files: Sequence[Mapping[str, Any] | None]) -> list[Table]:
    """From the files of all cells: the claims compare them, so nothing is shown while one is missing."""
    found = [file for file in files if file is not None]
    if len(found) < len(files):
        return [
            Table(SEEDS, SEEDS_COLUMNS, ((NOT_YET,) * len(SEEDS_COLUMNS),)),
            Table(TRAINED, TRAINED_COLUMNS, ((NOT_YET,) * len(TRAINED_COLUMNS),)),
            claims_table(CLAIMS, [Claim(text) for text in (TT_TRAINS, RESTT_TRAINS, RELAXED, VARIES_LESS)]),
        ]
    setting = found[0]["settings"]
    over_sigma2 = [row for file in found for row in file["result"]["over_sigma2"]]
    over_seeds = [file["result"]["over_seeds"] for file in found]
    note = f"MNIST, {100 * setting['fraction']:g} % of the training data, {setting['epochs']} epochs, no guard."
    trained = _trained(over_sigma2)
    rows = [
        (*model, *(", ".join(f"{value:g}" for value in values) or "none" for values in groups))
        for model, groups in trained.items()
    ]
    means = (
        "One run for each σ_w²; it trains where the final training accuracy is above half of the study's best. "
        "MeanTT here is as in the paper, with its angle π/2; where it stays at chance its spread says nothing."
    )
    return [
        Table(SEEDS, SEEDS_COLUMNS, tuple(_seeds(row) for row in over_seeds), (note,)),
        Table(TRAINED, TRAINED_COLUMNS, tuple(rows), (note, means)),
        claims_table(CLAIMS, _claims(trained, over_seeds), (note, means)),
    ]


Model = tuple[str, str, str]  # name, r, rate
Trained = dict[Model, tuple[list[float], list[float]]]


def _model(row: Row) -> Model:
    return MODELS[row["topology"]], str(row["bond_dim"]), f"{row['lr']:g}"


def _seeds(row: Row) -> tuple[str, ...]:
    accuracy = row["final_test_accuracy"]
    return *_model(row), mean_std(accuracy), f"{min(accuracy):.2f}", f"{max(accuracy):.2f}"


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
    spread = {_model(row): row["std"] for row in over_seeds}
    pairs = [(spread[restt, *size], spread[tt, *size]) for size in sizes]
    return [
        Claim(TT_TRAINS, _unless("it does not at", stuck), not stuck),
        Claim(RESTT_TRAINS, _unless("it does not at", outside), not outside),
        Claim(
            RELAXED,
            "values that train, ResTT : TT: " + ", ".join(f"{ours} : {theirs}" for ours, theirs in counts),
            all(ours > theirs for ours, theirs in counts),
        ),
        Claim(
            VARIES_LESS,
            "std, ResTT : MeanTT: " + ", ".join(f"{ours:.2f} : {theirs:.2f}" for ours, theirs in pairs),
            all(ours < theirs for ours, theirs in pairs),
        ),
    ]


def _unless(words: str, exceptions: Sequence[str]) -> str:
    return f"{words} " + "; ".join(exceptions) if exceptions else "without exception"
