"""Tables of ``fig-meanfield``, from the one file that it writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from restt.reproduce.store import Store
from restt.reproduce.tables import NOT_YET, Table

FOLDER = "meanfield"
AGREEMENT = "Mean-field theory against measurement: step of the mean square along the chain, measured / predicted"
AGREEMENT_COLUMNS = ("model", "forward q", "backward χ", "largest deviation in standard errors", "agrees")
WIDTH = "Plain TT at σ_w² = 1: change of log q along the chain by bond dimension"
WIDTH_COLUMNS = ("r", "theory for the mean", "measured mean", "theory for the typical run", "measured median")
DRAWN = ("conventions", "profiles", "steps", "finite-width", "gradients", "phases", "trainability")


def picture(folder: Path, name: str, profile: str) -> Path:
    """Where a picture of the study lies; those of the quick profile never take the place of the paper's."""
    return folder / (f"{name}.png" if profile == "paper" else f"{name}-{profile}.png")


# Over a whole profile of a few hundred sites, deviations up to this many standard errors are chance.
CHANCE = 5.0


def read_run(store: Store, stem: str, profile: str) -> dict[str, Any] | None:
    """What ``{stem}-{profile}.json`` holds, None where it is not there."""
    path = _run_file(store, stem, profile)
    if path is None:
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not whole JSON ({error}); move it away and run the experiment again") from error
    return found


def _run_file(store: Store, stem: str, profile: str) -> Path | None:
    """In the store's folder, in its ``meanfield`` or in the one beside it."""
    for folder in (store.folder, store.folder / FOLDER, store.folder.parent / FOLDER):
        path: Path = folder / f"{stem}-{profile}.json"
        if path.exists():
            return path
    return None


def drawn(store: Store, profile: str) -> list[Path]:
    """The pictures that were drawn with the results."""
    path = _run_file(store, "meanfield", profile)
    if path is None:
        return []
    return [file for name in DRAWN if (file := picture(path.parent, name, profile)).exists()]


def files(store: Store, profile: str) -> list[dict[str, Any] | None]:
    """The results the tables come from."""
    return [read_run(store, "meanfield", profile)]


def tables(store: Store, profile: str) -> list[Table]:
    """Does the measured signal follow the recursions, and what does a finite width do?"""
    (found,) = files(store, profile)
    if found is None:
        return [Table(title, columns, ((NOT_YET,) * 5,)) for title, columns in _HEADS]
    setting = found["setting"]
    cases = found["theory_against_measurement"].items()
    return [
        Table(
            AGREEMENT,
            AGREEMENT_COLUMNS,
            tuple(_agreement(name, case) for name, case in cases),
            (f"N = {setting['sites']}, r = {setting['bond_dim']}, {setting['runs']} random models a case.",),
        ),
        Table(
            WIDTH,
            WIDTH_COLUMNS,
            tuple(_width(row) for row in found["finite_width"]),
            (
                f"{setting['width_runs']} random models a row. The theory's mean is carried by rare runs, so a "
                "measured mean falls short of it; the typical run decays, faster the smaller r is.",
            ),
        ),
    ]


_HEADS = ((AGREEMENT, AGREEMENT_COLUMNS), (WIDTH, WIDTH_COLUMNS))


def _agreement(name: str, case: Mapping[str, Any]) -> tuple[str, ...]:
    steps = case["q_steps"], case["chi_steps"]
    largest = max(step["largest_profile_z"] for step in steps)
    ratios = [f"{step['mean_ratio']:.4f} ± {step['mean_ratio_error']:.4f}" for step in steps]
    return name, *ratios, f"{largest:.1f}", "yes" if largest < CHANCE else "no"


def _width(row: Mapping[str, float]) -> tuple[str, ...]:
    names = ("predicted_log_mean", "log_mean", "predicted_log_typical", "log_median")
    return str(row["bond_dim"]), *(f"{row[name]:.1f}" for name in names)
