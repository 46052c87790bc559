"""Table IV: accuracy by fraction of the training data, MeanTT and ResTT, three bond dimensions, two data sets.

Beside them stands the plain tensor train that trains best, so that ResTT is not only compared with a weak one, and
ResTT on the very images that the authors' code takes, the first ones, so that like is compared with like.
"""

from __future__ import annotations

from restt_paper.engine.experiment import Experiment
from restt_paper.engine.store import Cell, Store
from restt_paper.engine.table import NOT_YET, Table, paper_mean_std
from restt_paper.engine.verdict import RULE, Target, claims_table, total_wall_seconds
from restt_paper.images.accuracy import (
    ACCURACIES,
    BEST_TRAIN,
    BEST_TRAIN_LABEL,
    MEANTT_NOTE,
    MODELS,
    PARTS_ASKED,
    Duel,
    mean_final,
    more_accurate,
    papers_restt,
    shown_accuracy,
    steadier,
)
from restt_paper.images.cells import VALIDATION_SHARE, compute_recipe, paper_cell, sizes
from restt_paper.images.data import NAMES, part_of
from restt_paper.paper_numbers import paper_numbers

TITLE = "Table IV: accuracy by fraction of the training data"
MINUTES_ALLOWED = 30.0
PRINTED = (20, 100)  # bond dimensions with rows in the paper
# Fractions and bond dimensions of ResTT on the first images.
FIRST_FRACTIONS = {"paper": (0.01, 0.05, 0.1), "quick": (0.2,)}
FIRST_BOND_DIMS = {"paper": PRINTED, "quick": (20,)}


def cells(profile: str) -> list[Cell]:
    """One cell per data set, model, bond dimension and fraction, then ResTT on the first images.

    The paper's r comes first, large ones before small ones.
    """
    chosen = sizes(profile)
    random = [
        paper_cell(profile, dataset, model, bond_dim, fraction)
        for bond_dim in sorted(chosen.bond_dims, key=lambda r: (r not in PRINTED, -r))
        for dataset in NAMES
        for model, _, its_bond_dim in reversed(_models(profile))
        if its_bond_dim == bond_dim
        for fraction in sorted(chosen.fractions, reverse=True)
    ]
    return [*random, *(first for _, _, _, first in _first_cells(profile))]


def tables(store: Store, profile: str) -> list[Table]:
    """One table per data set and way to pick the epoch, the paper's rows beside ours."""
    tables = [_table(store, profile, kind) for kind in ACCURACIES]
    tables += [_first_images(store, profile), _rates(store, profile)]
    # Small sets and a few epochs say nothing about the paper's claims.
    return [*tables, _claims(store, profile)] if profile == "paper" else tables


def _models(profile: str) -> list[tuple[str, str, int]]:
    """Recipe, its name in the tables and bond dimension, row by row."""
    bond_dims = sizes(profile).bond_dims
    of_the_paper = [(model, label, bond_dim) for model, label in MODELS.items() for bond_dim in bond_dims]
    return [(BEST_TRAIN, BEST_TRAIN_LABEL, max(bond_dims)), *of_the_paper]


def _duels(profile: str, baseline: str) -> list[Duel]:
    """ResTT against ``baseline`` wherever both are trained."""
    return [
        Duel(
            f"{part_of(dataset, fraction)}, r = {bond_dim}",
            paper_cell(profile, dataset, "restt", bond_dim, fraction),
            paper_cell(profile, dataset, baseline, bond_dim, fraction),
        )
        for dataset in NAMES
        for model, _, bond_dim in _models(profile)
        if model == baseline
        for fraction in sizes(profile).fractions
    ]


def _claims(store: Store, profile: str) -> Table:
    duels = _duels(profile, "meantt")
    claims = [
        more_accurate(store, "ResTT consistently outperforms MeanTT in accuracy", duels),
        steadier(store, "ResTT consistently outperforms MeanTT in stability: its seeds differ less", duels),
        more_accurate(store, f"ResTT is more accurate than {BEST_TRAIN_LABEL}", _duels(profile, BEST_TRAIN)),
    ]
    return claims_table("Table IV: the paper's claims", claims, ("By the final epoch.", RULE, MEANTT_NOTE))


def _table(store: Store, profile: str, kind: str) -> Table:
    chosen = sizes(profile)
    printed = paper_numbers()["table4_fractions"]
    rows = []
    for dataset, name in NAMES.items():
        for model, label, bond_dim in _models(profile):
            numbers = printed[name].get(f"{label} r={bond_dim}")
            paper = {} if numbers is None else dict(zip(printed["fractions"], numbers, strict=True))
            entries = []
            for fraction in chosen.fractions:
                ours = shown_accuracy(store, paper_cell(profile, dataset, model, bond_dim, fraction), kind)
                entries.append(f"{ours} ({paper_mean_std(paper[fraction])})" if fraction in paper else ours)
            rows.append((name, label, f"{bond_dim}", *entries))
    columns = ("data", "model", "r", *(f"{100 * fraction:g} %" for fraction in chosen.fractions))
    title = f"Table IV: {ACCURACIES[kind]} (in brackets the paper's)"
    return Table(title, columns, tuple(rows), (_notes(profile, kind),), details=kind != "final")


def _first_cells(profile: str) -> list[tuple[str, int, float, Cell]]:
    """Data set, bond dimension, fraction, and the cell of ResTT on the first images."""
    return [
        (dataset, bond_dim, fraction, paper_cell(profile, dataset, "restt", bond_dim, fraction, "first"))
        for dataset in NAMES
        for bond_dim in FIRST_BOND_DIMS[profile]
        for fraction in FIRST_FRACTIONS[profile]
    ]


def _first_images(store: Store, profile: str) -> Table:
    rows = []
    for dataset, bond_dim, fraction, first in _first_cells(profile):
        random = paper_cell(profile, dataset, "restt", bond_dim, fraction)
        rows.append(
            (
                part_of(dataset, fraction),
                f"{bond_dim}",
                papers_restt(dataset, fraction, bond_dim) if profile == "paper" else "–",
                *(shown_accuracy(store, first, kind) for kind in ("best_on_test", "selected", "final")),
                shown_accuracy(store, random, "best_on_test"),
            )
        )
    columns = (
        "first images of",
        "r",
        "paper (best epoch on test)",
        "ours, best epoch on test",
        "ours, selected epoch",
        "ours, final epoch",
        "random images, best epoch on test",
    )
    notes = (
        "ResTT by the paper's recipe on the images that the authors' public code takes: the first ones of the training "
        "set, the same for every seed. Like with like are the third and the fourth column; the last has other images.",
    )
    return Table("Table IV: ResTT on the authors' own images", columns, tuple(rows), notes, details=True)


def _notes(profile: str, kind: str) -> str:
    if kind == "best_on_test":
        return (
            "The epoch is chosen on the test images, as the paper's public code does: only to compare with the paper."
        )
    if kind == "selected":
        return (
            f"The epoch is one for all seeds: the best of further runs ({sizes(profile).held_out}) that hold out "
            f"{100 * VALIDATION_SHARE:g} % of their training images. The seeds themselves train on all of theirs."
        )
    return (
        "Mean ± standard deviation (of the sample, n − 1) over seeds, each with a random part of the training images "
        "of its own. The authors' code takes the first images instead, the same for every seed, which are harder than "
        "random ones in MNIST: see the table of those."
    )


def _rates(store: Store, profile: str) -> Table:
    """The chosen rates, from the cells that used them."""
    rows = []
    for dataset in NAMES:
        for model, label, bond_dim in _models(profile):
            content = store.load(paper_cell(profile, dataset, model, bond_dim, max(sizes(profile).fractions)))
            rate = NOT_YET if content is None else f"{content['result']['lr']:g}"
            rows.append((NAMES[dataset], label, f"{bond_dim}", rate))
    notes = (
        "The best of the paper's three on a sixth of the training images, held out; chosen once for all fractions, so "
        "the rate of 1 % was chosen with 59,400 labels outside the part. That of TT belongs to its recipe.",
    )
    return Table("Table IV: learning rates", ("data", "model", "r", "rate"), tuple(rows), notes, details=True)


def _restt(dataset: str, fraction: float, bound: float) -> Target:
    cell = paper_cell("paper", dataset, "restt", 100, fraction)
    return Target(
        part_of(dataset, fraction),
        papers_restt(dataset, fraction),
        "at least",
        bound,
        lambda store: mean_final(store, cell),
        recipe="the paper's",
    )


def _minutes(store: Store) -> float | None:
    """Of the cells on random parts, and of the choices of their rates."""
    wanted = [cell for cell in cells("paper") if cell.settings.get("subset") == "random"]
    rates = {rate.key: rate for cell in wanted for rate in cell.needs.values()}
    seconds = total_wall_seconds(store, [*wanted, *rates.values()])
    return None if seconds is None else seconds / 60


TARGETS = (
    _restt("mnist", 1.0, 98.90),
    _restt("fashion-mnist", 1.0, 90.0),
    *(_restt(dataset, part, bound) for dataset, bounds in PARTS_ASKED.items() for part, bound in bounds.items()),
    Target(
        "Table IV, all cells on random images with 10 seeds, and the choice of rates",
        "–",
        "at most",
        MINUTES_ALLOWED,
        _minutes,
        unit="minutes",
        digits=1,
    ),
)
EXPERIMENT = Experiment("table4", TITLE, cells, compute_recipe, tables, targets=TARGETS)
