"""A fitted table and its folder: the estimator's own file, the card for programs, and the card for people.

The card lists the files with their hashes. Only files that are still as listed are replaced; all else stays.
"""

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
FILES = (MODEL, README, CARD)
NEW = ".restt-new"  # inside a folder whose files are being replaced


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
        """Write the model folder, whole or not at all.

        In an existing one, ``force`` replaces the model's files if they are as they were written; all others stay.
        """
        target = check_output(folder, force=force)
        home = target if target.exists() else target.parent
        home.mkdir(parents=True, exist_ok=True)
        remove_abandoned(home)
        made = unfinished(home, f".{target.name}.")
        made.mkdir()
        try:
            self.estimator.save(made)
            write_bytes_atomic(made / README, readme(self.card).encode())
            card = replace(self.card, files={name: _digest(made / name) for name in (MODEL, README)}).to_json()
            card["files"][CARD] = _card_digest(card)
            write_json_atomic(made / CARD, card)
            if home is target:
                _replace(made, target)
            else:
                os.replace(made, target)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        sync_folder(home)
        return target


def as_fitted(model: str | PathLike[str] | FittedTable) -> FittedTable:
    """The model itself, or the one that lies in a folder."""
    return model if isinstance(model, FittedTable) else load(model)


def load(folder: str | PathLike[str]) -> FittedTable:
    """The model that lies in a folder; ValueError where there is none."""
    given = check_folder("model", folder)
    if not given.is_dir():
        raise FileNotFoundError(
            f"model must be a folder that `restt fit` wrote, got {str(given)!r}, which is not there"
        )
    for name in (MODEL, CARD):
        if not _current(given, name).is_file():
            raise ValueError(f"model must be a folder that `restt fit` wrote, got {str(given)!r}, which has no {name}")
    try:
        card = Card.from_json(json.loads(_current(given, CARD).read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{given / CARD} is damaged: {error}") from error
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
    if target.exists() and any(target.iterdir()):
        if not _current(target, CARD).is_file():
            raise FileExistsError(f"output {str(target)!r} is a folder with other things in it, which are not replaced")
        _check_unchanged(target)
    return target


def _check_unchanged(folder: Path) -> None:
    """FileExistsError where a file that would be replaced is not as its card says that it was written."""
    try:
        files = json.loads(_current(folder, CARD).read_text(encoding="utf-8"))["files"]
    except (ValueError, LookupError, TypeError, RecursionError):
        files = None
    for name in FILES:
        path = _current(folder, name)
        if not os.path.lexists(path):
            continue
        listed = files.get(name) if isinstance(files, dict) else None
        if listed is None or listed != _digest(path):
            why = (
                f"is not listed in {CARD} as written by restt" if listed is None else "was changed after restt wrote it"
            )
            raise FileExistsError(
                f"output {str(folder)!r} is not replaced: {name} {why}; move it away, or name another folder"
            )


def _digest(path: Path) -> str:
    """SHA-256 of a file's bytes, of a card without its own; "" for what is no file or no card."""
    if not path.is_file():
        return ""
    content = path.read_bytes()
    if path.name != CARD:
        return hashlib.sha256(content).hexdigest()
    return _card_digest(json.loads(content))


def _card_digest(card: dict[str, Any]) -> str:
    """SHA-256 of a card without its own entry among the files."""
    files = {name: digest for name, digest in card["files"].items() if name != CARD}
    return hashlib.sha256(json.dumps({**card, "files": files}, sort_keys=True).encode()).hexdigest()


def _replace(made: Path, target: Path) -> None:
    """Put finished files in the place of those in ``target``.

    The move of the model's file decides: before it the folder holds the old model, after it the new one, whose other
    files are found in :data:`NEW` until they have their places.
    """
    _finish(target)
    os.replace(made, target / NEW)
    sync_folder(target)
    try:
        os.replace(target / NEW / MODEL, target / MODEL)
    finally:
        _finish(target)


def _finish(folder: Path) -> None:
    """Complete a replacement whose model has its place; forget one whose model has not."""
    new = folder / NEW
    if not new.is_dir():
        return
    if not (new / MODEL).exists():
        sync_folder(folder)
        for name in (README, CARD):
            if (new / name).exists():
                os.replace(new / name, folder / name)
        sync_folder(folder)
    shutil.rmtree(new)


def _current(folder: Path, name: str) -> Path:
    """Where a file of the folder's model lies: in :data:`NEW` if a replacement was interrupted behind its decision."""
    new = folder / NEW
    return new / name if (new / name).exists() and not (new / MODEL).exists() else folder / name
