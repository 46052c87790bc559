"""Table II: all tensor networks on the whole training sets."""

from __future__ import annotations

from typing import Any

from restt.features.formulas import PAPER_ANGLE
from restt_baselines import available
from restt_baselines.tensor import tree_sweeps
from restt_paper.engine.cell import Cell
from restt_paper.engine.claim import RULE, claims_table
from restt_paper.engine.experiment import Experiment
from restt_paper.engine.store import Store
from restt_paper.engine.table import NOT_YET, Table, paper_mean_std
from restt_paper.images import departures, swept_trials
from restt_paper.images.accuracy import (
    ACCURACIES,
    BEST_TRAIN,
    BEST_TRAIN_LABEL,
    MEANTT_NOTE,
    MODELS,
    Duel,
    more_accurate,
    shown_accuracy,
)
from restt_paper.images.cells import baseline_cell, compute_images, paper_cell, sizes
from restt_paper.images.data import NAMES
from restt_paper.paper_numbers import paper_numbers

TITLE = "Table II: accuracy of the tensor networks"
# The paper's row -> our baseline, trained as its source has it, and behind a colon which of its cells; a row whose
# baseline cannot be built here is "not yet".
BASELINES = {
    "TTN": "ttn",
    "MPS": "mps-dmrg:source",
    "EPS-SBS": "eps-sbs",
    "Snake-SBS": "snake-sbs",
    "TT-BN": "tt-bn-paper",
}
# The same networks trained in another way.
OTHERWISE = {
    "TTN by cross-entropy (ours)": "ttn-crossentropy",
    "MPS, [1, x/4] of the source's public code": "mps-dmrg:code",
    "MPS, angle 0.8 (ours)": "mps-dmrg",
}
# The paper's MPS cites two ways to train one.
BY_GRADIENTS = {"MPS, automatic gradients": "mps-adam"}
# The order they are computed in, and what is trained: the tree takes whole images, since it resizes them itself. Where
# no batch norm sees their rows, held-out runs train beside the seeds.
NETWORKS: dict[str, dict[str, Any]] = {
    "mps-dmrg:source": {"seeds": 1, "held_out": 0},
    "mps-dmrg:code": {"seeds": 1, "held_out": 0},
    "mps-dmrg": {"seeds": 3, "held_out": 0},
    "snake-sbs": {"seeds": 5, "held_out": 1, "together": True},
    "eps-sbs": {"seeds": 5, "held_out": 1, "together": True},
    "ttn": {"seeds": 5, "held_out": 0, "half": False},
    "ttn-crossentropy": {
        "seeds": 2,
        "held_out": 0,
        "half": False,
        "shared_length": tree_sweeps.SHARED_LENGTH,
        "step_control": tree_sweeps.STEP_CONTROL,
    },
    "mps-adam": {"seeds": 5, "held_out": 1, "together": True},
    "tt-bn-paper": {"seeds": 5, "held_out": 0},
}
# Their settings, where not their defaults. The more images, the less a penalty is needed.
CHOSEN: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {
        "mps-dmrg:source": {"bond_dim": 120, "sweeps": 15, "penalty": 1e-6, "angle": PAPER_ANGLE},
        "mps-dmrg:code": {"bond_dim": 120, "sweeps": 5, "penalty": 1e-6, "angle": None},
        "mps-dmrg": {"bond_dim": 100, "sweeps": 4, "penalty": 2e-4},
        "ttn": {"bond_dim": 10, "feature_dim": 3, "sweeps": 4},
        "ttn-crossentropy": {"bond_dim": 8, "sweeps": 30},
        "tt-bn-paper": {"bond_dim": 100, "epochs": 100},
    },
    "quick": {
        "mps-dmrg:source": {"bond_dim": 10, "sweeps": 1, "angle": PAPER_ANGLE},
        "mps-dmrg:code": {"bond_dim": 10, "sweeps": 1, "angle": None},
        "mps-dmrg": {"bond_dim": 10, "sweeps": 1},
        "ttn": {"bond_dim": 4, "feature_dim": 2, "sweeps": 3},
        "ttn-crossentropy": {"bond_dim": 4, "sweeps": 6},
        "tt-bn-paper": {"bond_dim": 20, "epochs": 2},
    },
}
# What the sources' rows are, beside what the sources report.
SOURCES = (
    "TTN: one tree for each class against equally many images of the others, the linear cost alone. Assumed: d and D, "
    "one for all classes (its source gives every class its own), by the trials below; all training images.",
    "MPS: its source reports less than 1 % of errors on MNIST by the angle π/2. Assumed: bonds of 120 and 15 sweeps "
    "there and back; from 91 % after the first it rises to 97 % after the twelfth and then stays. The source's "
    "public code has [1, x/4] instead of that angle, and warns that the angle lets projections vanish. Its number is "
    "missed by all three; the first two have one seed, which makes a tie of every claim.",
    "TT-BN: by the paper's recipe, as far as it is known, no seed trains: gradients are no longer finite. The eps of "
    "torch's norm alone does that, its shift alone leaves four of five seeds untrained, and its running averages "
    "predict badly; angle, cores and rate cost less, see the departures. The paper's 95.05 is not explained.",
)
BOND_DIM = {"paper": 100, "quick": 20}
# What the paper runs once, we run a few times.
SEEDS = {"paper": {"seeds": 5, "held_out": 1}, "quick": {"seeds": 2, "held_out": 1}}
EPOCHS = {"paper": 20, "quick": 2}  # of TT-BN, whose step is many small ones
# Batch norm after every contraction; r is the paper's 100.
NORMALISED = {
    "TT-BN (ours)": ("tt-bn", "site"),
    "TT-BN (ours), one norm shared by the sites": ("tt-bn", "shared"),
}


def cells(profile: str) -> list[Cell]:
    """The baselines that can be built here, TT-BN, and Table IV's cells of TT, MeanTT and ResTT."""
    baselines = [cell for baseline in NETWORKS for dataset in NAMES if (cell := _baseline(profile, dataset, baseline))]
    normalised = [
        _normalised(profile, dataset, baseline, how) for baseline, how in NORMALISED.values() for dataset in NAMES
    ]
    trains = [_train(profile, dataset, model) for model in (BEST_TRAIN, *MODELS) for dataset in NAMES]
    if profile != "paper":
        return [*baselines, *normalised, *trains]
    return [*swept_trials.cells(), *baselines, *normalised, *trains, *departures.cells()]


def tables(store: Store, profile: str) -> list[Table]:
    """One table per way to pick the epoch, and the paper's claims."""
    found = [_table(store, profile, kind) for kind in ACCURACIES]
    # Small sets and a few epochs say nothing about the paper's claims.
    if profile != "paper":
        return found
    return [*found, departures.table(store), *swept_trials.tables(store), _claims(store, profile)]


def _claims(store: Store, profile: str) -> Table:
    against_restt, against_norm = [], []
    for dataset, name in NAMES.items():
        restt, meantt = (_train(profile, dataset, model) for model in ("restt", "meantt"))
        networks = {**BASELINES, **OTHERWISE, **BY_GRADIENTS}
        others: dict[str, Cell | None] = {
            label: _baseline(profile, dataset, baseline) for label, baseline in networks.items()
        }
        normalised = {
            label: _normalised(profile, dataset, baseline, how) for label, (baseline, how) in NORMALISED.items()
        }
        others |= {**normalised, "TT": _train(profile, dataset, BEST_TRAIN), "MeanTT": meantt}
        against_restt += [Duel(f"{label}, {name}", restt, other) for label, other in others.items()]
        regularised = {label: others[label] for label in networks if label.startswith(("MPS", "TT-BN"))} | normalised
        against_norm += [Duel(f"{label}, {name}", meantt, other) for label, other in regularised.items()]
    claims = [
        more_accurate(store, "ResTT outperforms the other tensor networks", against_restt),
        more_accurate(store, "MeanTT is better than the regularised MPS and TT-BN", against_norm),
    ]
    return claims_table("Table II: the paper's claims", claims, ("By the final epoch.", RULE, MEANTT_NOTE))


def _table(store: Store, profile: str, kind: str) -> Table:
    bond_dim = BOND_DIM[profile]
    rows = []
    printed = {label: label for label in BASELINES} | {"TT-BN": "TT-BN(r=100)" if bond_dim == 100 else None}
    printed |= dict.fromkeys(BY_GRADIENTS, "MPS")
    for label, baseline in {**BASELINES, **OTHERWISE, **BY_GRADIENTS}.items():
        ours = [_baseline(profile, dataset, baseline) for dataset in NAMES]
        rows.append(_row(store, label, printed.get(label), ours, kind))
    for label, (baseline, how) in NORMALISED.items():
        ours = [_normalised(profile, dataset, baseline, how) for dataset in NAMES]
        rows.append(_row(store, label, None, ours, kind))
    rows.append(_row(store, BEST_TRAIN_LABEL, None, _trains(profile, BEST_TRAIN), kind))
    for model, label in MODELS.items():
        row = f"{label}(r=100)" if bond_dim == 100 else None
        rows.append(_row(store, f"{label}, r = {bond_dim}", row, _trains(profile, model), kind))
    columns = ("model", *(f"{name}, {who}" for name in NAMES.values() for who in ("paper", "ours")))
    notes = (
        "The paper's numbers are its best epochs on the test images: compare them with the table of those.",
        MEANTT_NOTE,
        f"TT-BN (ours) has {SEEDS[profile]['seeds']} seeds; it trains {EPOCHS[profile]} epochs with initial rotations, "
        "angle 0.5 and a rate that falls to zero, and predicts by the statistics of a batch of training images. TT-BN "
        "is the paper's recipe, with one norm for all sites and a constant rate of 1e-4 as in the authors' code.",
        "The networks of other authors are trained as restt.baselines says for each. Seeds: "
        + ", ".join(f"{baseline} {how['seeds']}" for baseline, how in NETWORKS.items())
        + ". TTN and MPS by sweeps have no held-out runs, so no epoch of theirs is selected.",
        *(SOURCES if profile == "paper" else ()),
    )
    return Table(f"Table II: {ACCURACIES[kind]}", columns, tuple(rows), notes)


def _row(
    store: Store, label: str, printed: str | None, ours: list[Cell | None] | list[Cell], kind: str
) -> tuple[str, ...]:
    numbers = paper_numbers()["table2_accuracy"]
    entries = []
    for dataset, cell in zip(NAMES, ours, strict=True):
        entries.append("–" if printed is None else paper_mean_std(numbers[NAMES[dataset]][printed]))
        entries.append(NOT_YET if cell is None else shown_accuracy(store, cell, kind))
    return (label, *entries)


def _baseline(profile: str, dataset: str, name: str) -> Cell | None:
    """None for one that cannot be built here."""
    baseline, _, variant = name.partition(":")
    if baseline not in available("classification"):
        return None
    changes = {"half": True, **NETWORKS[name]}
    params = CHOSEN[profile].get(name)
    if profile == "quick":
        changes["seeds"] = SEEDS["quick"]["seeds"]
    return baseline_cell("table2", profile, dataset, baseline, 1.0, params, variant=variant or None, **changes)


def _normalised(profile: str, dataset: str, baseline: str, how: str) -> Cell:
    params = {"bond_dim": BOND_DIM[profile], "statistics": how, "epochs": EPOCHS[profile], "lr": 1e-3}
    return baseline_cell("table2", profile, dataset, baseline, 1.0, params, half=True, variant=how, **SEEDS[profile])


def _train(profile: str, dataset: str, model: str) -> Cell:
    return paper_cell(profile, dataset, model, max(sizes(profile).bond_dims), 1.0)


def _trains(profile: str, model: str) -> list[Cell]:
    return [_train(profile, dataset, model) for dataset in NAMES]


EXPERIMENT = Experiment("table2", TITLE, cells, compute_images, tables)
