"""Seconds per epoch of the tensor networks of other authors that train by gradients, beside TensorKrowch's.

Each network is the baseline at its defaults, fed by the library's own training loop, on random images of the paper's
size: 60,000 of 14×14 pixels. TensorKrowch has one of these models, the train with its label in the middle; its epoch is
the time of its step (forward, loss, backward, fused Adam on a batch that is ready) times the steps, without any loop.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from restt.train import train
from restt_baselines import make
from restt_bench.case import Case, Settings
from restt_bench.implementations.baselines import TensorKrowch
from restt_bench.timing import measure_on

if TYPE_CHECKING:
    from rich.console import Console

IMAGES, PIXELS, CLASSES = 60_000, 196, 10
QUICK_IMAGES, QUICK_PIXELS = 100, 16
NETWORKS = ("mps-adam", "snake-sbs", "eps-sbs", "tt")
# The first epoch compiles.
EPOCHS = 3


def networks(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """An epoch of every network and, where TensorKrowch has the same model, of TensorKrowch."""
    images, pixels = (QUICK_IMAGES, QUICK_PIXELS) if settings.quick else (IMAGES, PIXELS)
    generator = torch.Generator().manual_seed(settings.seed)
    x = torch.rand(images, pixels, generator=generator).to(device)
    y = torch.randint(CLASSES, (images,), generator=generator).to(device)
    results: list[dict[str, Any]] = []
    for name in NETWORKS:
        estimator = make(name, task="classification")
        config = replace(estimator.training_config(images, settings.seed), epochs=EPOCHS)
        module = estimator.build(pixels, CLASSES, 1, settings.seed).to(device)
        records = list(train(module, x, y, config=config, feature_map=estimator.feature_map()))
        batch = config.batch_size or images
        results.append(
            {
                "network": name,
                "batch": batch,
                "bond_dim": estimator.bond_dim,
                "seconds_per_epoch": min(record.seconds for record in records[1:]),
            }
        )
        if name == "mps-adam":
            case = Case(sites=pixels, bond_dim=estimator.bond_dim, outputs=CLASSES, batch=batch, device=device)
            results += _of_tensorkrowch(case, images, settings)
    for result in results:
        told = result.get("skipped") or f"{result['seconds_per_epoch']:.3g} s an epoch"
        console.print(f"{result['network']}, r={result['bond_dim']}, batches of {result['batch']}: {told}")
    title = f"Seconds per epoch of {images:,} images of {pixels} pixels"
    return {"title": title, "results": results}


def _of_tensorkrowch(case: Case, images: int, settings: Settings) -> list[dict[str, Any]]:
    results = []
    for inline in (False, True):
        layer = TensorKrowch(inline=inline, middle=True)
        entry: dict[str, Any] = {"network": layer.label, "batch": case.batch, "bond_dim": case.bond_dim}
        refusal = layer.refusal(case)
        if refusal is not None:
            results.append({**entry, "skipped": refusal})
            continue
        work = layer.build(case, settings.seed)
        found = measure_on(case.device, {"step": work.step}, rounds=settings.rounds, budget=settings.budget)
        seconds = found["step"].median * (images / case.batch)
        results.append({**entry, "seconds_per_epoch": seconds, "flags": layer.flags(case)})
    return results
