"""Table V: limited data, against the classical and neural baselines, and on 1 % of MNIST the multi-task models."""

from __future__ import annotations

from typing import Any

from restt_paper.experiments import Cell, Experiment, Store
from restt_paper.images.accuracy import (
    NAMES,
    Duel,
    Row,
    accuracy_tables,
    more_accurate,
    part_of,
    shown_accuracy,
    steadier,
)
from restt_paper.images.cells import baseline_cell, compute_images, paper_cell, sizes
from restt_paper.table import Table, paper_mean_std, paper_numbers
from restt_paper.verdict import RULE, claims_table

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
    """The baselines, then ResTT at the largest bond dimension (Table IV's cells)."""
    fractions = FRACTIONS[profile]
    baselines = [_baseline(profile, name, model, f) for model in BASELINES for name in NAMES for f in fractions]
    multitask = [_multitask_cell(profile, baseline, start) for start in STARTS for baseline in MULTITASK]
    restt = [_restt(profile, dataset, fraction) for dataset in NAMES for fraction in fractions]
    return [*baselines, *multitask, *restt]


def tables(store: Store, profile: str) -> list[Table]:
    """Both data sets, the paper's rows beside ours, and the multi-task models."""
    fractions = FRACTIONS[profile]
    printed = paper_numbers()["table5_limited"]
    rows = []
    for dataset, name in NAMES.items():
        for baseline, label in {**BASELINES, "restt": "ResTT"}.items():
            paper = dict(zip(printed["fractions"], printed[name][label], strict=True))
            entries = [
                (paper_mean_std(paper.get(fraction)), _baseline(profile, dataset, baseline, fraction))
                for fraction in fractions
            ]
            rows.append(Row((name, label), entries))
    columns = ("data", "model", *(f"{100 * part:g} %, {who}" for part in fractions for who in ("paper", "ours")))
    note = (
        "The paper's rows near 10 % are trainings that failed. Each of our seeds has a random part of the training "
        "images. The baselines see 28×28 pixels; ResTT, at r = 100 by the paper's recipe, means of 2×2. "
        "ResNet18 has 60, 30 and 15 epochs in bfloat16, the others those of their recipes."
    )
    accuracies = accuracy_tables(store, "Table V: {}", columns, rows, lambda kind: (note,))
    return [*accuracies, _multitask(store, profile)]


def claims(store: Store) -> Table:
    """The paper's claims, by the final epoch."""

    def duels(*baselines: str) -> list[Duel]:
        return [
            Duel(
                f"{BASELINES[baseline]} at {part_of(dataset, fraction)}",
                _restt("paper", dataset, fraction),
                _baseline("paper", dataset, baseline, fraction),
            )
            for dataset in NAMES
            for baseline in baselines
            for fraction in FRACTIONS["paper"]
        ]

    convolutional = duels("lenet5", "resnet18")
    ours = _restt("paper", "mnist", MULTITASK_FRACTION["paper"])
    multitask = [
        Duel(f"{label}, {start} start", ours, _multitask_cell("paper", baseline, start))
        for start in STARTS
        for baseline, label in MULTITASK.items()
    ]
    judged = [
        more_accurate(store, "ResTT is significantly better than LeNet-5 and ResNet18 in accuracy", convolutional),
        steadier(store, "ResTT trains more robustly than LeNet-5 and ResNet18: its seeds differ less", convolutional),
        more_accurate(store, "ResTT is better than LR and MLP", duels("lr", "mlp")),
        more_accurate(store, "On 1 % of MNIST ResTT is better than the multi-task models", multitask),
    ]
    note = "The spread over seeds includes that of their random images, which are the same for all models."
    return claims_table("Table V", judged, ("By the final epoch.", RULE, note))


def _multitask(store: Store, profile: str) -> Table:
    printed = paper_numbers()["table5_limited"]["MNIST_1_percent_multitask"]
    fraction = MULTITASK_FRACTION[profile]
    rows = []
    for baseline, label in MULTITASK.items():
        ours = (shown_accuracy(store, _multitask_cell(profile, baseline, start), "final") for start in STARTS)
        rows.append((label, paper_mean_std(printed[label]), *ours))
    title = f"Table V: MNIST, {100 * fraction:g} %, multi-task models, final epoch"
    columns = ("model", "paper", *(f"ours, {start} start" for start in STARTS))
    note = (
        "The start from trained networks of single tasks and the relative error of its decomposition are those of the "
        "source's public code; widths, windows, Adam, the binary cross-entropy and the epochs are assumed, see "
        "restt_baselines.dmtrl. The random start keeps half of each squared norm, and has "
        f"{MULTITASK_SEEDS['random']} seeds."
    )
    return Table(title, columns, tuple(rows), (note,) if profile == "paper" else (), details=True)


def _multitask_cell(profile: str, baseline: str, start: str) -> Cell:
    changes: dict[str, Any] = {"seeds": MULTITASK_SEEDS[start], "held_out": 0} if profile == "paper" else {}
    params = {**STARTS[start], **({} if profile == "paper" else QUICK_WIDTHS)}
    fraction = MULTITASK_FRACTION[profile]
    variant = f"{start}-f{fraction:g}"
    return baseline_cell("table5", profile, "mnist", baseline, fraction, params, variant=variant, **changes)


def _restt(profile: str, dataset: str, fraction: float) -> Cell:
    return paper_cell(profile, dataset, "restt", max(sizes(profile).bond_dims), fraction)


def _baseline(profile: str, dataset: str, baseline: str, fraction: float) -> Cell:
    if baseline == "restt":
        return _restt(profile, dataset, fraction)
    params: dict[str, Any] | None = None
    changes: dict[str, Any] = {}
    if baseline == "resnet18":
        if profile == "paper":
            params = {"epochs": RESNET_EPOCHS[fraction], "precision": "bf16"}
        else:
            changes = {"rows": QUICK_RESNET_ROWS}
    return baseline_cell("table5", profile, dataset, baseline, fraction, params, **changes)


EXPERIMENT = Experiment("table5", TITLE, cells, compute_images, tables, claims)
