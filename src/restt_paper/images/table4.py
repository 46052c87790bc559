"""Table IV: accuracy by fraction of the training data, MeanTT and ResTT, three bond dimensions, two data sets.

Beside them stands the plain tensor train that trains best, so that ResTT is not only compared with a weak one, and
ResTT on the very images that the authors' code takes, the first ones, so that like is compared with like.
"""

from __future__ import annotations

from restt_paper.experiments import Cell, Experiment, Store
from restt_paper.images.accuracy import (
    BEST_TRAIN,
    BEST_TRAIN_LABEL,
    MEANTT_NOTE,
    MODELS,
    NAMES,
    PARTS_ASKED,
    Duel,
    Row,
    accuracy_tables,
    accuracy_target,
    more_accurate,
    papers_restt,
    part_of,
    shown_accuracy,
    steadier,
)
from restt_paper.images.cells import VALIDATION_SHARE, compute_images, paper_cell, sizes
from restt_paper.table import NO_NUMBER, NOT_YET, Table, paper_mean_std, paper_numbers
from restt_paper.verdict import RULE, Target, claims_table

TITLE = "Table IV: accuracy by fraction of the training data"
MINUTES_ALLOWED = 30.0
PRINTED = (20, 100)  # bond dimensions with rows in the paper
# Fractions and bond dimensions of ResTT on the first images.
FIRST_FRACTIONS = {"paper": (0.01, 0.05, 0.1), "quick": (0.2,)}
FIRST_KINDS = {"best_on_test": "best epoch on test", "selected": "selected epoch", "final": "final epoch"}
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
    """One table per way to pick the epoch, then ResTT on the first images, and the learning rates."""
    fractions = sizes(profile).fractions
    printed = paper_numbers()["table4_fractions"]
    rows = []
    for dataset, name in NAMES.items():
        for model, label, bond_dim in _models(profile):
            numbers = printed[name].get(f"{label} r={bond_dim}")
            paper = {} if numbers is None else dict(zip(printed["fractions"], numbers, strict=True))
            entries = [
                (
                    paper_mean_std(paper[fraction]) if fraction in paper else None,
                    paper_cell(profile, dataset, model, bond_dim, fraction),
                )
                for fraction in fractions
            ]
            rows.append(Row((name, label, f"{bond_dim}"), entries))
    columns = ("data", "model", "r", *(f"{100 * fraction:g} %" for fraction in fractions))
    title = "Table IV: {} (in brackets the paper's)"
    accuracies = accuracy_tables(store, title, columns, rows, lambda kind: (_note(profile, kind),), in_brackets=True)
    return [*accuracies, _first_images(store, profile), _rates(store, profile)]


def _models(profile: str) -> list[tuple[str, str, int]]:
    """Recipe, its name in the tables and bond dimension, row by row."""
    bond_dims = sizes(profile).bond_dims
    of_the_paper = [(model, label, bond_dim) for model, label in MODELS.items() for bond_dim in bond_dims]
    return [(BEST_TRAIN, BEST_TRAIN_LABEL, max(bond_dims)), *of_the_paper]


def _duels(baseline: str) -> list[Duel]:
    """ResTT against ``baseline`` wherever both are trained."""
    return [
        Duel(
            f"{part_of(dataset, fraction)}, r = {bond_dim}",
            paper_cell("paper", dataset, "restt", bond_dim, fraction),
            paper_cell("paper", dataset, baseline, bond_dim, fraction),
        )
        for dataset in NAMES
        for model, _, bond_dim in _models("paper")
        if model == baseline
        for fraction in sizes("paper").fractions
    ]


def claims(store: Store) -> Table:
    """The paper's claims, by the final epoch."""
    duels = _duels("meantt")
    judged = [
        more_accurate(store, "ResTT consistently outperforms MeanTT in accuracy", duels),
        steadier(store, "ResTT consistently outperforms MeanTT in stability: its seeds differ less", duels),
        more_accurate(store, f"ResTT is more accurate than {BEST_TRAIN_LABEL}", _duels(BEST_TRAIN)),
    ]
    return claims_table("Table IV", judged, ("By the final epoch.", RULE, MEANTT_NOTE))


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
        paper = papers_restt(dataset, fraction, bond_dim) if profile == "paper" else NO_NUMBER
        row = {"first images of": part_of(dataset, fraction), "r": f"{bond_dim}", "paper (best epoch on test)": paper}
        row |= {f"ours, {words}": shown_accuracy(store, first, kind) for kind, words in FIRST_KINDS.items()}
        rows.append({**row, "random images, best epoch on test": shown_accuracy(store, random, "best_on_test")})
    notes = (
        "ResTT by the paper's recipe on the images that the authors' public code takes: the first ones of the training "
        "set, the same for every seed. Like with like are the third and the fourth column; the last has other images.",
    )
    return Table.of("Table IV: ResTT on the authors' own images", rows, notes, details=True)


def _note(profile: str, kind: str) -> str:
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
            rows.append({"data": NAMES[dataset], "model": label, "r": f"{bond_dim}", "rate": rate})
    notes = (
        "The best of the paper's three on a sixth of the training images, held out; chosen once for all fractions, so "
        "the rate of 1 % was chosen with 59,400 labels outside the part. That of TT belongs to its recipe.",
    )
    return Table.of("Table IV: learning rates", rows, notes, details=True)


def _minutes(store: Store) -> float | None:
    """Minutes of the cells on random parts and of the choices of their rates; None while one is missing."""
    wanted = [cell for cell in cells("paper") if cell.settings.get("subset") == "random"]
    rates = {rate.key: rate for cell in wanted for rate in cell.needs.values()}
    files = [store.load(cell) for cell in (*wanted, *rates.values())]
    return None if None in files else sum(file["wall_seconds"] for file in files if file is not None) / 60


PARTS = {"mnist": {1.0: 98.90}, "fashion-mnist": {1.0: 90.0}}
TARGETS = (
    *(
        accuracy_target(paper_cell("paper", dataset, "restt", 100, part), bound, recipe="the paper's")
        for bounds_of in (PARTS, PARTS_ASKED)
        for dataset, bounds in bounds_of.items()
        for part, bound in bounds.items()
    ),
    Target(
        "Table IV, all cells on random images with 10 seeds, and the choice of rates",
        NO_NUMBER,
        "at most",
        MINUTES_ALLOWED,
        _minutes,
        unit="minutes",
        digits=1,
    ),
)
EXPERIMENT = Experiment("table4", TITLE, cells, compute_images, tables, claims, targets=TARGETS)
