"""Table V: limited data, against the classical and neural baselines, and on 1 % of MNIST the multi-task models."""

from __future__ import annotations

from typing import Any

from restt_baselines import available
from restt_paper.engine.cell import Cell
from restt_paper.engine.claim import RULE, claims_table
from restt_paper.engine.experiment import Experiment
from restt_paper.engine.store import Store
from restt_paper.engine.table import NOT_YET, Table, paper_mean_std
from restt_paper.images.accuracy import ACCURACIES, Duel, more_accurate, shown_accuracy, steadier
from restt_paper.images.cells import baseline_cell, compute_images, paper_cell, sizes
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
    found = [_table(store, profile, dataset, kind) for dataset in NAMES for kind in ACCURACIES]
    # Small sets and a few epochs say nothing about the paper's claims.
    return [*found, _multitask(store, profile), *([_claims(store, profile)] if profile == "paper" else [])]


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


def _table(store: Store, profile: str, dataset: str, kind: str) -> Table:
    fractions = FRACTIONS[profile]
    printed = paper_numbers()["table5_limited"]
    rows = []
    for baseline, label in {**BASELINES, "restt": "ResTT"}.items():
        given = dict(zip(printed["fractions"], printed[NAMES[dataset]][label], strict=True))
        rows.append((label, "paper", *(paper_mean_std(given.get(fraction)) for fraction in fractions)))
        ours = [
            _restt(profile, dataset, fraction)
            if baseline == "restt"
            else _baseline(profile, dataset, baseline, fraction)
            for fraction in fractions
        ]
        rows.append((label, "ours", *(shown_accuracy(store, cell, kind) for cell in ours)))
    columns = ("model", "", *(f"{100 * fraction:g} %" for fraction in fractions))
    resnet = ", ".join(f"{epochs}" for epochs in RESNET_EPOCHS.values())
    notes = (
        "The paper's rows near 10 % are trainings that failed.",
        f"ResTT at r = {max(sizes(profile).bond_dims)}, the paper's recipe.",
        "Ours: each seed with a random part of the training images of its own; the authors' code takes the first ones.",
        "The baselines see the images in full, 28×28; ResTT sees means of 2×2 pixels, as in the paper. Epochs: ResTT "
        "100 as in the paper, the baselines what their recipes in restt.baselines have"
        + (f", ResNet18 {resnet} (more images, fewer passes) in bfloat16." if profile == "paper" else "."),
    )
    return Table(f"Table V: {NAMES[dataset]}, {ACCURACIES[kind]}", columns, tuple(rows), notes)


def _multitask(store: Store, profile: str) -> Table:
    printed = paper_numbers()["table5_limited"]["MNIST_1_percent_multitask"]
    fraction = MULTITASK_FRACTION[profile]
    rows = []
    for baseline, label in MULTITASK.items():
        found = [_multitask_cell(profile, baseline, start) for start in STARTS]
        ours = (NOT_YET if cell is None else shown_accuracy(store, cell, "final") for cell in found)
        rows.append((label, paper_mean_std(printed[label]), *ours))
    title = f"Table V: MNIST, {100 * fraction:g} %, multi-task models, final epoch"
    columns = ("model", "paper", *(f"ours, {start} start" for start in STARTS))
    note = (
        "The start from trained networks of single tasks and the relative error of its decomposition are those of the "
        "source's public code; widths, windows, Adam, the binary cross-entropy and the epochs are assumed, see "
        "restt_baselines.networks.dmtrl. The random start keeps half of each squared norm, and has "
        f"{MULTITASK_SEEDS['random']} seeds."
    )
    return Table(title, columns, tuple(rows), (note,) if profile == "paper" else ())


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
