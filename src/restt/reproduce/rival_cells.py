"""Cells of the rivals on images: any estimator of :mod:`restt.baselines`.

Rivals that are a torch module train all seeds side by side, exactly as ResTT does; others fit one seed after another.
"""

from __future__ import annotations

from typing import Any

from restt.baselines import make
from restt.baselines.network import NetworkClassifier
from restt.reproduce.cells import Cell
from restt.reproduce.image_cells import sizes
from restt.reproduce.image_data import Images, load_images, training_rows
from restt.reproduce.image_training import train_seeds
from restt.reproduce.store import Store
from restt.train import TrainConfig

# Full passes over the paper's largest sets are what the quick profile is not for.
QUICK_EPOCHS = 2


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

    ``params`` are the estimator's, where not its defaults; ``half`` gives it the paper's 14×14 images.
    """
    chosen = sizes(profile)
    return Cell(
        experiment,
        f"{dataset}-{rival}-f{fraction:g}",
        {
            "profile": profile,
            "dataset": dataset,
            "rival": rival,
            "params": params or {},
            "fraction": fraction,
            "seeds": chosen.seeds,
            "held_out": chosen.held_out,
            "rows": chosen.rows,
            "half": half,
            "seed": 0,
            **changes,
        },
    )


def compute_rival(cell: Cell, store: Store) -> dict[str, Any]:
    """Train the seeds of a :func:`rival_cell`."""
    settings = cell.settings
    images = load_images(settings["dataset"], settings["rows"], half=settings["half"])
    params = dict(settings["params"])
    estimator = make(settings["rival"], task="classification", **params)
    if settings["profile"] == "quick" and "epochs" in estimator.get_params():
        estimator.set_params(epochs=QUICK_EPOCHS)
    if isinstance(estimator, NetworkClassifier):
        return {**_side_by_side(estimator, images, cell, store), "settings": _plain_params(estimator)}
    return {**_one_by_one(estimator, images, cell, store), "settings": _plain_params(estimator)}


def _side_by_side(estimator: NetworkClassifier, images: Images, cell: Cell, store: Store) -> dict[str, Any]:
    settings = cell.settings
    columns = images.x.shape[1]
    config = TrainConfig(
        epochs=estimator.epochs,
        batch_size=estimator.batch_size,
        lr=estimator.lr,
        weight_decay=estimator.weight_decay,
        schedule=estimator.schedule,
        clip_norm=estimator.clip_norm,
        loss=estimator.loss,
        seed=settings["seed"],
    )
    return train_seeds(
        lambda runs: estimator.build(columns, images.classes, runs, settings["seed"]).to(store.device),
        images,
        config,
        fraction=settings["fraction"],
        seeds=settings["seeds"],
        held_out=settings["held_out"],
        feature_map=estimator.feature_map(),
        together=False,
    )


def _one_by_one(estimator: Any, images: Images, cell: Cell, store: Store) -> dict[str, Any]:
    settings = cell.settings
    known = estimator.get_params()
    x, y, test = images.x.numpy(), images.y.numpy(), images.test_rows.numpy()
    final = []
    for run in range(settings["seeds"]):
        if "random_state" in known:
            estimator.set_params(random_state=settings["seed"] + run)
        if "device" in known:
            estimator.set_params(device=store.device)
        rows = training_rows(images, settings["fraction"], run).numpy()
        estimator.fit(x[rows], y[rows])
        final.append(round(100 * float(estimator.score(x[test], y[test])), 4))
    return {"final": final, "rows": len(rows)}


def _plain_params(estimator: Any) -> dict[str, Any]:
    return {
        name: value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)
        for name, value in estimator.get_params().items()
    }
