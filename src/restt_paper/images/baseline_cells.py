"""Cells of the baselines on images, and their computation."""

from __future__ import annotations

from typing import Any

import torch

from restt_baselines import make
from restt_baselines.network import NetworkClassifier
from restt_baselines.tensor.swept import SweptClassifier
from restt_paper.engine.experiment import Context, Result, Settings
from restt_paper.engine.store import Cell
from restt_paper.images.cells import VALIDATION_SHARE, compute_recipe, sizes
from restt_paper.images.data import Images, load_images, training_rows
from restt_paper.images.training import accuracy_curves, three_accuracies, train_seeds

QUICK_EPOCHS = 2
# A baseline's parameters that play no part: pixels are in [0, 1] as they come; runs, seeds and device are the cell's.
NOT_USED = ("scaling", "runs", "device", "random_state", "verbose")


def baseline_cell(
    experiment: str,
    profile: str,
    dataset: str,
    baseline: str,
    fraction: float,
    params: dict[str, Any] | None = None,
    *,
    half: bool = False,
    variant: str | None = None,
    **changes: Any,  # of seeds, held_out, rows; together, where held-out runs may train beside the seeds
) -> Cell:
    """All seeds of one baseline on a part of a data set.

    ``params`` are the estimator's, where not its defaults (the cell holds all of them, so that other defaults are
    another cell); ``half`` gives it the paper's 14×14 images; ``variant`` stands in the name for the fraction.
    """
    chosen = sizes(profile)
    given = dict(params or {})
    defaults = make(baseline, task="classification").get_params()
    if profile == "quick" and "epochs" in defaults:
        given.setdefault("epochs", QUICK_EPOCHS)
    used = {name: _plain(value) for name, value in {**defaults, **given}.items() if name not in NOT_USED}
    settings = {
        "profile": profile,
        "dataset": dataset,
        "baseline": baseline,
        "params": used,
        "fraction": fraction,
        "subset": "random",
        "seeds": chosen.seeds,
        "held_out": chosen.held_out,
        "validation_share": VALIDATION_SHARE,
        "rows": chosen.rows,
        "half": half,
        "seed": 0,
        **changes,
    }
    return Cell(experiment, f"{dataset}-{baseline}-{variant or f'f{fraction:g}'}", settings)


def compute_images(settings: Settings, context: Context) -> Result:
    """The result of a baseline's cell, or of a recipe's."""
    return _baseline(settings, context) if "baseline" in settings else compute_recipe(settings, context)


def _baseline(settings: Settings, context: Context) -> Result:
    """Train a baseline on all seeds of a cell.

    Torch modules train all seeds side by side, exactly as ResTT does; others one by one, those that sweep with their
    accuracy after each sweep. No epoch is selected: baselines have no held-out runs.
    """
    images = load_images(settings["dataset"], settings["rows"], half=settings["half"])
    estimator = make(settings["baseline"], task="classification", **settings["params"])
    if not isinstance(estimator, NetworkClassifier):
        return _one_by_one(estimator, images, settings, context)
    columns, seed = images.x.shape[1], settings["seed"]
    rows = len(training_rows(images, settings["fraction"], 0, settings["subset"]))
    return train_seeds(
        lambda runs: estimator.build(columns, images.classes, runs, seed).to(context.device),
        images,
        estimator.training_config(rows, seed),
        fraction=settings["fraction"],
        subset=settings["subset"],
        seeds=settings["seeds"],
        held_out=settings["held_out"],
        validation_share=settings["validation_share"],
        feature_map=estimator.feature_map(),
        together=settings.get("together", False),
        prepare=lambda module, train_first: estimator.prepare(module, train_first, rows, seed),
    )


def _one_by_one(estimator: Any, images: Images, settings: Settings, context: Context) -> Result:
    known = estimator.get_params()
    x, y, scored = images.x.numpy(), images.y.numpy(), images.test_rows.numpy()
    final, curves, seconds = [], [], 0.0
    for run in range(settings["seeds"]):
        if "random_state" in known:
            estimator.set_params(random_state=settings["seed"] + run)
        if "device" in known:
            estimator.set_params(device=context.device)
        rows = training_rows(images, settings["fraction"], run, settings["subset"]).numpy()
        if isinstance(estimator, SweptClassifier):
            records = list(estimator.fit_epochs(x[rows], y[rows], validation=(x[scored], y[scored])))
            curves.append(accuracy_curves(records))
            seconds += sum(record.seconds for record in records)
        else:
            estimator.fit(x[rows], y[rows])
        final.append(round(100 * float(estimator.score(x[scored], y[scored])), 4))
    if not curves:
        return {"final": final, "rows": len(rows)}
    accuracy = torch.cat(curves, dim=1)  # (sweeps, S)
    return {
        "rows": len(rows),
        **three_accuracies(accuracy, accuracy[:, :0]),
        "curves": [[round(value, 4) for value in curve] for curve in accuracy.T.tolist()],
        "training_seconds": round(seconds, 3),
    }


def _plain(value: Any) -> Any:
    """A parameter as a cell can hold it."""
    return value if isinstance(value, (bool, int, float, str, list, tuple, dict, type(None))) else repr(value)
