"""The model folder: the estimator's own file, the card for programs, and the card for people. Whole or absent.

The card lists the files with their hashes. Only files that are still as listed are replaced; all else stays.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import shutil
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from restt._common.errors import check_folder
from restt._common.files import remove_abandoned, sync_folder, unfinished, write_bytes_atomic, write_json_atomic
from restt.estimators import load as load_estimator
from restt.estimators.files import NAME as MODEL
from restt_app.workflow.card import Card
from restt_app.workflow.columns import UNREAD
from restt_app.workflow.fitting import FittedTable
from restt_app.workflow.metrics import words

CARD, README = "card.json", "README.md"
FILES = (MODEL, README, CARD)
NEW = ".restt-new"  # inside a folder whose files are being replaced


def save(fitted: FittedTable, folder: str | PathLike[str], *, force: bool = False) -> Path:
    """Write a model folder; see :meth:`FittedTable.save`."""
    target = check_output(folder, force=force)
    home = target if target.exists() else target.parent
    home.mkdir(parents=True, exist_ok=True)
    remove_abandoned(home)
    made = unfinished(home, f".{target.name}.")
    made.mkdir()
    try:
        fitted.estimator.save(made)
        write_bytes_atomic(made / README, readme(fitted.card).encode())
        card = replace(fitted.card, files={name: _digest(made / name) for name in (MODEL, README)}).to_json()
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
    file = _code(source["file"]) if source.get("file") not in (None, "-") else "a table"
    lines = [
        f"# Model of {_code(card.target)}",
        "",
        f"{card.task.capitalize()} by a residual tensor train, fitted to {rows} rows and "
        f"{source.get('columns')} columns of {file}.",
        "",
    ]
    lines += [f"SHA-256 of the file: `{source['sha256']}`", ""] if source.get("sha256") else []
    lines += _scores(card) + _columns(card)
    if card.notes:
        lines += ["## Notes", "", *(f"- {_escaped(note)}" for note in card.notes), ""]
    if card.stored:
        lines += ["## What is stored", "", *(f"- {_escaped(sentence)}" for sentence in card.stored), ""]
    settings = ", ".join(_escaped(f"{name} {value}") for name, value in card.settings.items()) or "defaults"
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


def _escaped(text: str) -> str:
    """Text of one line that Markdown shows as it is: no tag, link, emphasis, code or end of a table's cell.

    >>> print(_escaped("<b> *a*\\n[x](y)|"))
    &lt;b&gt; \\*a\\* \\[x\\]\\(y)\\|
    """
    line = html.escape(" ".join(str(text).split()), quote=False)
    return re.sub(r"([\\`*_\[\]|~#]|(?<=\])\()", r"\\\1", line)


def _code(name: str) -> str:
    """A name as code where it is plain, else as text: a tag or a backtick would end the code."""
    return f"`{name}`" if re.fullmatch(r"[\w .,:/-]+", name) else _escaped(name)


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
        "| model | " + " | ".join(words(name) for name in metrics) + " |",
        "|---" * (len(metrics) + 1) + "|",
        *rows,
        "",
    ]


def interval(entry: dict[str, Any]) -> str:
    """Format a score with its interval.

    >>> interval({"value": 0.5, "low": 0.401, "high": 0.6})
    '0.5 [0.401, 0.6]'
    """
    return f"{entry['value']:.4g} [{entry['low']:.3g}, {entry['high']:.3g}]"


def _columns(card: Card) -> list[str]:
    if not card.columns:
        return []
    lines = ["## Columns", "", "| column | holds | missing | |", "|---|---|---|---|"]
    for column in card.columns:
        missing = "" if column["kind"] == UNREAD else str(column["missing"])
        cells = (column["name"], holds(column), missing, column["note"])
        lines.append("| " + " | ".join(map(_escaped, cells)) + " |")
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
        some = ", ".join(levels[:4]) + (", …" if column["distinct"] > len(levels[:4]) else "")
        return f"{column['kind']}, {column['distinct']}: {some}"
    return str(column["kind"])
