"""Candidates on trial: trained on some of the training images and scored on the others.

Side by side, all candidates are runs of one training, which on a GPU takes little longer than one of them alone. Either
way a seed has the same initial weights, batches and random numbers with every candidate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from restt.train import Augmentation, train
from restt_paper.engine.experiment import Context, Result, Settings
from restt_paper.images.data import Images, load_images, training_rows
from restt_paper.images.recipes import Recipe
from restt_paper.images.sites import seen_through
from restt_paper.images.training import TEST_ROWS_AT_ONCE, FeatureMap, Views, accuracy_curves, matmul_precision

Parts = list[tuple[Tensor, Tensor]]  # rows to train on and rows to score, one pair per run


def compare_candidates(settings: Settings, context: Context) -> Result:
    """Accuracy of every candidate on held-out training images, and which is the best, for all seeds or for each."""
    images = load_images(settings["dataset"], settings["rows"])
    parts = [part for run in range(settings["seeds"]) for part in _parts(images, settings, run)]
    recipes = {label: Recipe.from_settings(given) for label, given in settings["candidates"].items()}
    labels = list(recipes)
    trials = [recipes] if settings.get("side_by_side") else [{label: recipes[label]} for label in labels]
    found = [one for trial in trials for one in try_side_by_side(trial, images, parts, settings, context.device)]
    by_candidate = torch.tensor([one["held_out_accuracy"] for one in found])
    by_candidate = by_candidate.view(len(labels), settings["seeds"], -1).mean(-1)
    judged = by_candidate if settings["by_seed"] else by_candidate.mean(1, keepdim=True)  # (candidates, choices)
    return {
        "chosen": [labels[int(best)] for best in judged.argmax(0)],
        "recipes": {label: settings["candidates"][label] for label in labels},
        **{name: {label: one[name] for label, one in zip(labels, found, strict=True)} for name in found[0]},
        "held_out_rows": len(parts[0][1]),
    }


def _parts(images: Images, settings: Settings, run: int) -> Parts:
    """Images of run ``run`` to train on and to score, once for each fold that is held out."""
    rows = training_rows(images, settings["fraction"], run)
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(settings["seed"] + run))]
    folds = rows.tensor_split(settings["folds"])
    return [
        (torch.cat([part for other, part in enumerate(folds) if other != fold]), folds[fold])
        for fold in range(settings["tried"])
    ]


def try_side_by_side(
    recipes: Mapping[str, Recipe], images: Images, parts: Parts, settings: Settings, device: str
) -> list[dict[str, list[float]]]:
    """What each recipe reaches on each part: accuracies in percent, and the training's last loss.

    Recipes that are tried together may differ in rate and augmentation alone.
    """
    common, augment = _common(recipes, len(parts))
    pixels, bond_dim, seed = images.x.shape[1], settings["bond_dim"], settings["seed"]
    children = list(range(len(parts))) * len(recipes)
    module = common.module(pixels, bond_dim, images.classes, len(children), seed, device, children)
    config = common.config(
        epochs=settings["epochs"],
        lr=[recipe.lr for recipe in recipes.values() for _ in parts],
        augment=augment,
        seed=seed,
        run_ids=children,
    )
    held = [rows for _, rows in parts] * len(recipes)
    found: dict[str, list[float]] = {}
    with matmul_precision(common.matmul_precision, device):
        records = list(
            train(
                module,
                images.x.to(device),
                images.y.to(device),
                config=config,
                subset=[rows for rows, _ in parts] * len(recipes),
                validation_subset=held,
                feature_map=common.feature_map(),
            )
        )
        curves = accuracy_curves(records).nan_to_num(0.0)  # (epochs, runs)
        found["held_out_accuracy"] = curves[-settings["judged_by_last_epochs"] :].mean(0).tolist()
        if settings.get("views") is not None:
            views = partial(seen_through, views=settings["views"])
            found["held_out_of_views"] = accuracy_of_views(module, images, held, common.feature_map(), views)
    found = {name: [round(value, 4) for value in values] for name, values in found.items()}
    found["last_training_loss"] = [float(f"{value:.4g}") for value in records[-1].train_loss]
    starts = range(0, len(children), len(parts))
    return [{name: values[start : start + len(parts)] for name, values in found.items()} for start in starts]


@torch.no_grad()
def accuracy_of_views(
    module: nn.Module, images: Images, rows: list[Tensor], feature_map: FeatureMap, views: Views
) -> list[float]:
    """Percent for each run on its own rows, outputs being means over views."""
    device = next(module.parameters()).device
    module.eval()
    filled = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)  # (S, longest)
    hits = torch.zeros(len(rows))
    for block in filled.split(TEST_ROWS_AT_ONCE, dim=1):
        seen = views(images.x[block].to(device))
        output = torch.stack([module(feature_map(view)) for view in seen]).mean(0)  # (S, B, O)
        hits += ((output.argmax(-1).cpu() == images.y[block]) & (block >= 0)).sum(1)
    return (100 * hits.double() / torch.tensor([len(own) for own in rows])).tolist()


@dataclass(frozen=True)
class AugmentationsSideBySide(Augmentation):
    """Runs with an augmentation of their own: each of ``kinds`` for ``each`` neighbouring runs.

    >>> both = AugmentationsSideBySide(kinds=(Augmentation(), Augmentation(flip=True)), each=3)
    >>> both(torch.rand(6, 5, 16), torch.arange(6)).shape
    torch.Size([6, 5, 16])
    """

    kinds: tuple[Augmentation, ...] = ()
    each: int = 1

    def __call__(
        self,
        x: Tensor,  # (S, B, H·W)
        keys: Tensor,  # (S,)
        offset: int = 0,
    ) -> Tensor:  # (S, B, H·W)
        if len(keys) != len(self.kinds) * self.each:
            raise RuntimeError(
                f"candidates must be tried to the end side by side, got {len(keys)} of "
                f"{len(self.kinds) * self.each} runs: a run was given up; try them one by one"
            )
        parts = zip(self.kinds, x.split(self.each), keys.split(self.each), strict=True)
        return torch.cat([kind(own, own_keys, offset) for kind, own, own_keys in parts])


def _common(recipes: Mapping[str, Recipe], each: int) -> tuple[Recipe, Augmentation | None]:
    """What the recipes have in common, and their augmentations as one."""
    first = next(iter(recipes.values()))
    for label, recipe in recipes.items():
        if replace(recipe, lr=first.lr, augment=first.augment) != first:
            raise ValueError(f"candidates side by side must differ in rate and augmentation alone, {label!r} does not")
    if len(recipes) == 1:
        return first, None if first.augment is None else Augmentation(**first.augment)
    kinds = tuple(Augmentation(**(recipe.augment or {})) for recipe in recipes.values())
    if any(kind.blend for kind in kinds):
        raise ValueError("candidates side by side must not blend images, got one that does")
    return first, AugmentationsSideBySide(kinds=kinds, each=each)
