"""The model folder: the estimator's own file, the card for programs, and the card for people. Whole or absent."""

from __future__ import annotations

import json
import os
import shutil
from os import PathLike
from pathlib import Path
from typing import Any

from restt._common.errors import check_folder
from restt._common.files import remove_abandoned, sync_folder, unfinished, write_bytes_atomic, write_json_atomic
from restt.estimators import load as load_estimator
from restt.estimators.files import NAME as MODEL
from restt.workflow.card import Card
from restt.workflow.fitting import FittedTable

CARD, README = "card.json", "README.md"
METRIC_WORDS = {"r2": "R²", "rmse": "root mean square error", "log_loss": "log-loss", "accuracy": "accuracy"}


def save(fitted: FittedTable, folder: str | PathLike[str], *, force: bool = False) -> Path:
    """Write a model folder; see :meth:`FittedTable.save`."""
    target = check_output(folder, force=force)
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(target.parent)
    made = unfinished(target.parent, f".{target.name}.")
    made.mkdir()
    try:
        fitted.estimator.save(made)
        write_json_atomic(made / CARD, fitted.card.to_json())
        write_bytes_atomic(made / README, readme(fitted.card).encode())
        _put(made, target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    sync_folder(target.parent)
    return target


def load(folder: str | PathLike[str]) -> FittedTable:
    """The model that lies in a folder; ValueError where there is none."""
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


def _put(made: Path, target: Path) -> None:
    """Move a finished folder to its place; one that is there goes only once the new one has its place."""
    if not target.exists():
        os.replace(made, target)
        return
    old = unfinished(target.parent, f".{target.name}.old.")
    os.replace(target, old)
    try:
        os.replace(made, target)
    except BaseException:
        os.replace(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def readme(card: Card) -> str:
    """The card as Markdown for people.

    >>> print(readme(Card("regression", "price", source={"file": "houses.csv", "rows": 50, "columns": 3})))
    # Model of `price`
    <BLANKLINE>
    Regression by a residual tensor train, fitted to 50 rows and 3 columns of `houses.csv`.
    ...
    """
    source = card.source
    rows = source.get("rows_used", source.get("rows"))
    file = f"`{source['file']}`" if source.get("file") not in (None, "-") else "a table"
    lines = [
        f"# Model of `{card.target}`",
        "",
        f"{card.task.capitalize()} by a residual tensor train, fitted to {rows} rows and "
        f"{source.get('columns')} columns of {file}.",
        "",
    ]
    lines += [f"SHA-256 of the file: `{source['sha256']}`", ""] if source.get("sha256") else []
    lines += _scores(card) + _columns(card)
    if card.notes:
        lines += ["## Notes", "", *(f"- {note}" for note in card.notes), ""]
    settings = ", ".join(f"{name} {value}" for name, value in card.settings.items()) or "defaults"
    versions = ", ".join(f"{name} {value}" for name, value in card.versions.items())
    lines += [
        "## How it was made",
        "",
        f"{card.created}, in {card.seconds:g} s. Settings: {settings}. Versions: {versions}.",
        "",
        "```",
        "restt predict THIS_FOLDER new.csv",
        "restt explain THIS_FOLDER data.csv -o page.html",
        "```",
        "",
    ]
    return "\n".join(lines)


def _scores(card: Card) -> list[str]:
    if not card.scores:
        return []
    metrics = list(dict.fromkeys(one["metric"] for one in card.scores))
    found = {(one["model"], one["metric"]): one for one in card.scores}
    models = list(dict.fromkeys(one["model"] for one in card.scores))
    rows = [f"| {model} | " + " | ".join(interval(found[model, name]) for name in metrics) + " |" for model in models]
    return [
        "## How well it does",
        "",
        f"On {card.held_out['rows']} rows no model had seen ({card.held_out['method']}), with intervals that hold "
        "95 % of the resamples:",
        "",
        "| model | " + " | ".join(METRIC_WORDS[name] for name in metrics) + " |",
        "|---" * (len(metrics) + 1) + "|",
        *rows,
        "",
    ]


def interval(entry: dict[str, Any]) -> str:
    """
    >>> interval({"value": 0.5, "low": 0.401, "high": 0.6})
    '0.5 [0.401, 0.6]'
    """
    return f"{entry['value']:.4g} [{entry['low']:.4g}, {entry['high']:.4g}]"


def _columns(card: Card) -> list[str]:
    if not card.columns:
        return []
    lines = ["## Columns", "", "| column | holds | missing | |", "|---|---|---|---|"]
    for column in card.columns:
        cells = (column["name"], holds(column), str(column["missing"]), column["note"])
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [*lines, ""]


def holds(column: dict[str, Any]) -> str:
    """A column's content in a few words.

    >>> holds({"kind": "number", "range": [0.0, 1500.5]})
    'number, 0 to 1500.5'
    >>> holds({"kind": "category", "levels": ["a", "b", "c", "d", "e"], "distinct": 7})
    'category, 7: a, b, c, d, …'
    """
    if ends := column.get("range"):
        low, high = (f"{end:.6g}" if isinstance(end, float) else str(end) for end in ends)
        return f"{column['kind']}, {low} to {high}"
    if levels := column.get("levels"):
        some = ", ".join(levels[:4]) + (", …" if column["distinct"] > 4 else "")
        return f"{column['kind']}, {column['distinct']}: {some}"
    return str(column["kind"])
