"""One file per table and figure of the paper."""

from __future__ import annotations

import importlib
from os import PathLike
from pathlib import Path

from restt._errors import check_choice

# Experiment -> the module under restt.reproduce whose `run(profile, output, device)` it is, and its default folder.
EXPERIMENTS = {
    "fig-meanfield": ("fig_meanfield", "results/meanfield"),
    "claims-stability": ("claims_stability", "results/meanfield"),
}


def run(
    name: str, profile: str = "quick", output: str | PathLike[str] | None = None, device: str = "auto"
) -> list[Path]:
    """Run one experiment; returns the files in its folder. ``device="auto"`` takes a GPU where there is one."""
    import torch

    module, folder = EXPERIMENTS[check_choice("name", name, EXPERIMENTS)]
    target = Path(folder if output is None else output)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    importlib.import_module(f"restt.reproduce.{module}").run(profile, target, device)
    return sorted(path for path in target.iterdir() if path.is_file())
