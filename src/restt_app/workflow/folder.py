"""A fitted table and its folder: the estimator's own file, the card for programs, and the card for people."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from restt._common.errors import check_folder
from restt._common.files import remove_abandoned, sync_folder, unfinished, write_bytes_atomic, write_json_atomic
from restt.estimators import load as load_estimator
from restt.estimators.files import NAME as MODEL
from restt_app.workflow.card import Card, readme
from restt_app.workflow.columns import Column

CARD, README = "card.json", "README.md"


@dataclass(frozen=True, eq=False)
class FittedTable:
    """A fitted estimator and its card.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from restt.workflow import fit_table
    >>> data = pd.DataFrame(np.random.default_rng(0).random((40, 2)), columns=["a", "b"])
    >>> fitted = fit_table(data.assign(y=data.a * data.b), "y", parameters={"effort": "quick"})
    >>> fitted.card.task, fitted.card.held_out["method"]
    ('regression', '5 folds')
    """

    estimator: Any
    card: Card

    @property
    def columns(self) -> list[Column]:
        """All columns of the table it was fitted to, but the target."""
        return [Column.from_json(column) for column in self.card.columns]

    @property
    def target_column(self) -> Column:
        """Description of the target."""
        return Column.from_json(self.card.target_column)

    def save(self, folder: str | PathLike[str], *, force: bool = False) -> Path:
        """Write the model folder; in an existing one, ``force`` replaces the model's files, and all others stay."""
        target = check_output(folder, force=force)
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(target.parent)
        made = unfinished(target.parent, f".{target.name}.")
        made.mkdir()
        try:
            self.estimator.save(made)
            write_bytes_atomic(made / README, readme(self.card).encode())
            card = replace(self.card, files={MODEL: _digest(made / MODEL)})
            write_json_atomic(made / CARD, card.to_json())
            if target.exists():
                for name in (README, CARD, MODEL):
                    os.replace(made / name, target / name)
            else:
                os.replace(made, target)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        sync_folder(target)
        sync_folder(target.parent)
        return target


def as_fitted(model: str | PathLike[str] | FittedTable) -> FittedTable:
    """The model itself, or the one that lies in a folder."""
    return model if isinstance(model, FittedTable) else load(model)


def load(folder: str | PathLike[str]) -> FittedTable:
    """The model that lies in a folder; ValueError where there is none, or files of two."""
    given = check_folder("model", folder)
    if not given.is_dir():
        raise FileNotFoundError(
            f"model must be a folder that `restt fit` wrote, got {str(given)!r}, which is not there"
        )
    for name in (MODEL, CARD):
        if not (given / name).is_file():
            raise ValueError(f"model must be a folder that `restt fit` wrote, got {str(given)!r}, which has no {name}")
    try:
        card = Card.from_json(json.loads((given / CARD).read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{given / CARD} is damaged: {error}") from error
    if card.files.get(MODEL, found := _digest(given / MODEL)) != found:
        raise ValueError(f"{given / CARD} describes another {MODEL} than the one beside it: fit the model again")
    return FittedTable(load_estimator(given), card)


def check_output(folder: str | PathLike[str], *, force: bool) -> Path:
    """``folder`` if a model may be written there: asked before the work begins."""
    if str(folder) == "":
        raise ValueError('output must name a folder, got ""')
    target = check_folder("output", folder)
    if target.exists() and not force:
        raise FileExistsError(
            f"output {str(target)!r} is there already: name another, or replace it with force (--force)"
        )
    if target.exists() and any(target.iterdir()) and not (target / CARD).is_file():
        raise FileExistsError(f"output {str(target)!r} is a folder with other things in it, which are not replaced")
    return target


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
