"""Table V: limited data, against the classical and neural baselines, and on 1 % of MNIST the multi-task models."""

from __future__ import annotations

from typing import Any

from restt_baselines import available
from restt_paper.engine.experiment import Experiment
from restt_paper.engine.store import Cell, Store
from restt_paper.engine.table import NOT_YET, Table, paper_mean_std
from restt_paper.engine.verdict import RULE, claims_table
from restt_paper.images.accuracy import ACCURACIES, Duel, more_accurate, shown_accuracy, steadier
from restt_paper.images.baseline_cells import baseline_cell, compute_images
from restt_paper.images.cells import paper_cell, sizes
from restt_paper.images.data import NAMES, part_of
from restt_paper.paper_numbers import paper_numbers

TITLE = "Table V: limited training data"
BASELINES = {"lr": "LR", "mlp": "MLP", "lenet5": "LeNet-5", "resnet18": "ResNet18"}
MULTITASK = {"dmtrl-tt": "DMTRL-TT", "dmtrl-tucker": "DMTRL-Tucker", "dmtrl-laf": "DMTRL-LAF"}
# Where the factors start: in the networks of single tasks, as in the source, or in a random draw of few factors.
STARTS: dict[str, dict[str, Any]] = {"trained": {}, "random": {"start": "random", "lost": 0.5}}
FRACTIONS = {"paper": (0.01, 0.05, 0.1), "quick": (0.2,)}
# Fewer passes over more images; the GPU multiplies in bfloat16.
RESNET_EPOCHS = {0.01: 60, 0.05: 30, 0.1: 15}
QUICK_RESNET_ROWS = 200  # it is slow on a CPU
MULTITASK_FRACTION = {"paper": 0.01, "quick": 0.2}
QUICK_WIDTHS: dict[str, Any] = {"maps": [8, 16], "hidden": 64}
# Each is ten networks; the source's start is the one that is asked for.
MULTITASK_SEEDS = {"trained": 5, "random": 2}


def cells(profile: str) -> list[Cell]:
    """The baselines that can be built here, then ResTT at the largest bond dimension (Table IV's cells)."""
    can = available("classification")
    baselines = [
        _baseline(profile, dataset, baseline, fraction)
        for baseline in BASELINES
        if baseline in can
        for dataset in NAMES
        for fraction in FRACTIONS[profile]
    ]
    multitask = [
        cell
        for start in STARTS
        for baseline in MULTITASK
        if (cell := _multitask_cell(profile, baseline, start)) is not None
    ]
    return [*baselines, *multitask, *(_restt(profile, dataset, f) for dataset in NAMES for f in FRACTIONS[profile])]


def tables(store: Store, profile: str) -> list[Table]:
    """Both data sets, the paper's rows beside ours, and the multi-task models."""
    tables = [_table(store, profile, kind) for kind in ACCURACIES]
    # Small sets and a few epochs say nothing about the paper's claims.
    return [*tables, _multitask(store, profile), *([_claims(store, profile)] if profile == "paper" else [])]


def _claims(store: Store, profile: str) -> Table:
    def duels(*baselines: str) -> list[Duel]:
        return [
            Duel(
                f"{BASELINES[baseline]} at {part_of(dataset, fraction)}",
                _restt(profile, dataset, fraction),
                _baseline(profile, dataset, baseline, fraction),
            )
            for dataset in NAMES
            for baseline in baselines
            for fraction in FRACTIONS[profile]
        ]

    convolutional = duels("lenet5", "resnet18")
    fraction = MULTITASK_FRACTION[profile]
    multitask = [
        Duel(f"{label}, {start} start", _restt(profile, "mnist", fraction), _multitask_cell(profile, baseline, start))
        for start in STARTS
        for baseline, label in MULTITASK.items()
    ]
    claims = [
        more_accurate(store, "ResTT is significantly better than LeNet-5 and ResNet18 in accuracy", convolutional),
        steadier(store, "ResTT trains more robustly than LeNet-5 and ResNet18: its seeds differ less", convolutional),
        more_accurate(store, "ResTT is better than LR and MLP", duels("lr", "mlp")),
        more_accurate(store, "On 1 % of MNIST ResTT is better than the multi-task models", multitask),
    ]
    note = "The spread over seeds includes that of their random images, which are the same for all models."
    return claims_table("Table V: the paper's claims", claims, ("By the final epoch.", RULE, note))


def _table(store: Store, profile: str, kind: str) -> Table:
    fractions = FRACTIONS[profile]
    printed = paper_numbers()["table5_limited"]
    rows = []
    for dataset, name in NAMES.items():
        for baseline, label in {**BASELINES, "restt": "ResTT"}.items():
            paper = dict(zip(printed["fractions"], printed[name][label], strict=True))
            entries = []
            for fraction in fractions:
                if baseline == "restt":
                    cell = _restt(profile, dataset, fraction)
                else:
                    cell = _baseline(profile, dataset, baseline, fraction)
                entries += [paper_mean_std(paper.get(fraction)), shown_accuracy(store, cell, kind)]
            rows.append((name, label, *entries))
    shares = (f"{100 * fraction:g} %, {who}" for fraction in fractions for who in ("paper", "ours"))
    notes = (
        "The paper's rows near 10 % are trainings that failed. Each of our seeds has a random part of the training "
        "images. The baselines see 28×28 pixels; ResTT, at r = 100 by the paper's recipe, means of 2×2. "
        "ResNet18 has 60, 30 and 15 epochs in bfloat16, the others those of their recipes.",
    )
    title = f"Table V: {ACCURACIES[kind]}"
    return Table(title, ("data", "model", *shares), tuple(rows), notes, details=kind != "final")


def _multitask(store: Store, profile: str) -> Table:
    printed = paper_numbers()["table5_limited"]["MNIST_1_percent_multitask"]
    fraction = MULTITASK_FRACTION[profile]
    rows = []
    for baseline, label in MULTITASK.items():
        cells_of_starts = [_multitask_cell(profile, baseline, start) for start in STARTS]
        ours = (NOT_YET if cell is None else shown_accuracy(store, cell, "final") for cell in cells_of_starts)
        rows.append((label, paper_mean_std(printed[label]), *ours))
    title = f"Table V: MNIST, {100 * fraction:g} %, multi-task models, final epoch"
    columns = ("model", "paper", *(f"ours, {start} start" for start in STARTS))
    note = (
        "The start from trained networks of single tasks and the relative error of its decomposition are those of the "
        "source's public code; widths, windows, Adam, the binary cross-entropy and the epochs are assumed, see "
        "restt_baselines.networks.dmtrl. The random start keeps half of each squared norm, and has "
        f"{MULTITASK_SEEDS['random']} seeds."
    )
    return Table(title, columns, tuple(rows), (note,) if profile == "paper" else (), details=True)


def _multitask_cell(profile: str, baseline: str, start: str) -> Cell | None:
    """None for one that cannot be built here."""
    if baseline not in available("classification"):
        return None
    changes: dict[str, Any] = {"seeds": MULTITASK_SEEDS[start], "held_out": 0} if profile == "paper" else {}
    params = {**STARTS[start], **({} if profile == "paper" else QUICK_WIDTHS)}
    fraction = MULTITASK_FRACTION[profile]
    return baseline_cell(
        "table5", profile, "mnist", baseline, fraction, params, variant=f"{start}-f{fraction:g}", **changes
    )


def _restt(profile: str, dataset: str, fraction: float) -> Cell:
    return paper_cell(profile, dataset, "restt", max(sizes(profile).bond_dims), fraction)


def _baseline(profile: str, dataset: str, baseline: str, fraction: float) -> Cell:
    params: dict[str, Any] | None = None
    changes: dict[str, Any] = {}
    if baseline == "resnet18":
        if profile == "paper":
            params = {"epochs": RESNET_EPOCHS[fraction], "precision": "bf16"}
        else:
            changes = {"rows": QUICK_RESNET_ROWS}
    return baseline_cell("table5", profile, dataset, baseline, fraction, params, **changes)


EXPERIMENT = Experiment("table5", TITLE, cells, compute_images, tables)
