"""Cells of the rivals on images: any estimator of :mod:`restt.baselines`.

Rivals that are a torch module train all seeds side by side, exactly as ResTT does; others fit one seed after another,
those that sweep with their accuracy after each sweep. No epoch of theirs is selected: they have no held-out runs.
"""

from __future__ import annotations

from typing import Any

import torch

from restt.baselines import isometric_tree, make, normalised_train
from restt.baselines.network import NetworkClassifier
from restt.baselines.swept import SweptClassifier
from restt.reproduce.cells import Cell, changed_since
from restt.reproduce.image_cells import sizes
from restt.reproduce.image_data import VALIDATION_SHARE, Images, load_images, training_rows
from restt.reproduce.image_training import accuracy_curves, three_accuracies, train_seeds
from restt.reproduce.store import Store

# Full passes over the paper's largest sets are what the quick profile is not for.
QUICK_EPOCHS = 2
# Parameters that play no part: pixels are in [0, 1] as they come, and runs, seeds and device are the cell's.
NOT_USED = ("scaling", "runs", "device", "random_state", "verbose")
# Of tt-bn's results whose settings do not name them, see changed_since.
UNNAMED = {"reference_rows": 512, "last_scale": 0.1}
# Whose held-out runs train beside the seeds: no batch norm sees their rows.
SIDE_BY_SIDE = ("mps-adam", "snake-sbs", "eps-sbs")


def rival_cell(
    experiment: str,
    profile: str,
    dataset: str,
    rival: str,
    fraction: float,
    params: dict[str, Any] | None = None,
    *,
    half: bool = False,
    **changes: Any,  # of seeds, held_out
) -> Cell:
    """All seeds of one rival on a fraction of a data set.

    ``params`` are the estimator's, where not its defaults (the cell holds all of them, so that other defaults are
    another cell); ``half`` gives it the paper's 14×14 images.
    """
    chosen = sizes(profile)
    given = dict(params or {})
    defaults = make(rival, task="classification").get_params()
    if profile == "quick" and "epochs" in defaults:
        given.setdefault("epochs", QUICK_EPOCHS)
    used = {name: _plain(value) for name, value in {**defaults, **given}.items() if name not in NOT_USED}
    return Cell(
        experiment,
        f"{dataset}-{rival}-f{fraction:g}",
        {
            "profile": profile,
            "dataset": dataset,
            "rival": rival,
            "params": used,
            "fraction": fraction,
            "seeds": chosen.seeds,
            "held_out": chosen.held_out,
            "validation_share": VALIDATION_SHARE,
            "rows": chosen.rows,
            "half": half,
            "seed": 0,
            **_constants(rival),
            **changes,
        },
    )


def compute_rival(cell: Cell, store: Store) -> dict[str, Any]:
    """Train the seeds of a :func:`rival_cell`."""
    settings = cell.settings
    images = load_images(settings["dataset"], settings["rows"], half=settings["half"])
    estimator = make(settings["rival"], task="classification", **settings["params"])
    if isinstance(estimator, NetworkClassifier):
        return _side_by_side(estimator, images, cell, store)
    return _one_by_one(estimator, images, cell, store)


def _side_by_side(estimator: NetworkClassifier, images: Images, cell: Cell, store: Store) -> dict[str, Any]:
    settings = cell.settings
    columns, rows = images.x.shape[1], len(training_rows(images, settings["fraction"], 0))
    return train_seeds(
        lambda runs: estimator.build(columns, images.classes, runs, settings["seed"]).to(store.device),
        images,
        estimator.training_config(rows, settings["seed"]),
        fraction=settings["fraction"],
        seeds=settings["seeds"],
        held_out=settings["held_out"],
        feature_map=estimator.feature_map(),
        together=settings["rival"] in SIDE_BY_SIDE,
    )


def _one_by_one(estimator: Any, images: Images, cell: Cell, store: Store) -> dict[str, Any]:
    settings = cell.settings
    known = estimator.get_params()
    x, y, test = images.x.numpy(), images.y.numpy(), images.test_rows.numpy()
    final, curves, seconds = [], [], 0.0
    for run in range(settings["seeds"]):
        if "random_state" in known:
            estimator.set_params(random_state=settings["seed"] + run)
        if "device" in known:
            estimator.set_params(device=store.device)
        rows = training_rows(images, settings["fraction"], run).numpy()
        if isinstance(estimator, SweptClassifier):
            records = list(estimator.fit_epochs(x[rows], y[rows], validation=(x[test], y[test])))
            curves.append(accuracy_curves(records))
            seconds += sum(record.seconds for record in records)
        else:
            estimator.fit(x[rows], y[rows])
        final.append(round(100 * float(estimator.score(x[test], y[test])), 4))
    if not curves:
        return {"final": final, "rows": len(rows)}
    accuracy = torch.cat(curves, dim=1)  # (sweeps, S)
    return {
        "rows": len(rows),
        **three_accuracies(accuracy, accuracy[:, :0]),
        "curves": [[round(value, 4) for value in curve] for curve in accuracy.T.tolist()],
        "training_seconds": round(seconds, 3),
    }


def _constants(rival: str) -> dict[str, Any]:
    """What fixes a rival's result and is none of its parameters."""
    if rival == "ttn":
        return {"least_length": isometric_tree.LEAST_LENGTH}
    if rival != "tt-bn":
        return {}
    rows, scale = normalised_train.REFERENCE_ROWS, normalised_train.LAST_SCALE
    return changed_since(UNNAMED, reference_rows=rows, last_scale=scale)


def _plain(value: Any) -> Any:
    """A parameter as a cell can hold it."""
    return value if isinstance(value, (bool, int, float, str, list, tuple, dict, type(None))) else repr(value)
