"""A fitted table and its folder: the estimator's own file, the model card for programs and for people.

The card is plain JSON: source and columns of a model, its scores on held-out rows, and how it was made. It lies as
``card.json`` beside the model; pages and the next ``predict`` read it. Its keys:

``version``
    1; raised when a card of today could be misread by yesterday's code.
``task``, ``target``, ``classes``
    ``"regression"`` or ``"classification"``; the column that is predicted; the labels in the order of the model's
    probabilities, spelled as in the file.
``source``
    ``file`` (its name without folders, ``"-"`` for standard input, None for a table in memory), ``sha256`` of its
    bytes, ``rows`` and ``columns`` as read, ``rows_used`` by the final fit, ``delimiter`` and ``encoding`` of text,
    and ``missing``, the words that mean a missing value beside the usual ones, in new tables too.
``columns``, ``target_column``
    An entry for each column of the file but the target, and one for the target: ``name``; ``kind``, one of ``number``,
    ``category``, ``boolean``, ``date``, or ``unread`` of a dropped one; how many values are ``missing``, and how many
    ``distinct``; ``used``, whether the model has it; ``inputs``, the names under which the model has it (a date may be
    several); ``note``, why it was left out or what was decided; ``layout``, how its text is written, such as
    ``1,234.5``, ``1234,5 kg`` or ``%m/%d/%Y``, by which new tables are read. Only of columns in use: the unit in
    ``layout``, ``range`` [least, largest] of numbers and dates, or ``levels`` that two rows or more share, the most
    frequent first and at most 100.
``held_out``
    ``method`` (such as ``"5 folds"``), ``rows`` that were predicted, ``trained_on``, rows of each fit that predicted
    them, ``metrics`` of ResTT by name, and ``seconds``, how long a fit of each model took.
``scores``
    ``{"model", "metric", "value", "low", "high"}`` of ``"ResTT"``, ``"linear"``, ``"boosting"`` and ``"mean"`` or
    ``"class shares"`` on the same rows. Metrics: ``r2`` and ``rmse``, or ``log_loss``, ``roc_auc``,
    ``average_precision``, ``brier`` and ``accuracy``. [low, high] holds 95 % of bootstrap resamples of these rows.
``calibration``
    On the held-out rows. Regression: ``coverage``, ``{"expected", "observed", "width"}`` of intervals; ``fifths``, the
    same of the 90 % interval for fifths of the predictions from ``low`` to ``high``; ``rows``, up to 500 of
    ``{"predicted", "observed", "low", "high"}`` (of the 90 % interval, or None). Classification: ``of``, the class
    whose probability is meant (None: whichever was predicted), ``bins`` of ``{"low", "high", "predicted", "observed",
    "rows"}`` and ``confusion``. Both: ``groups`` with larger errors. See :mod:`restt_app.workflow.metrics`.
``settings``, ``versions``, ``created``, ``seconds``
    Parameters that are not at their defaults, and ``seed``; of the software; when (UTC); how long all of it took.
``notes``, ``stored``
    Sentences a reader of the model should know, and on what of the table the model folder holds.
``files``
    SHA-256 of ``model.safetensors``; empty in a card that was not saved; no part of ``==``.

>>> card = Card(task="regression", target="y", notes=["one row had no y"])
>>> Card.from_json(card.to_json()) == card
True
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import shutil
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

from restt._common.errors import check_choice, check_folder, shown
from restt._common.files import sync_folder, unfinished, write_bytes_atomic, write_json_atomic
from restt.estimators import load as load_estimator
from restt.estimators.files import NAME as MODEL
from restt_app.workflow.columns import Column, from_plain
from restt_app.workflow.metrics import words

TASKS = ("classification", "regression")
VERSION = 1
CARD, README = "card.json", "README.md"


@dataclass(frozen=True)
class Card:
    """Description of a fitted table; the keys are listed in :mod:`restt_app.workflow.card`."""

    task: str
    target: str
    classes: list[Any] = field(default_factory=list)
    source: dict[str, Any] = field(default_factory=dict)
    columns: list[dict[str, Any]] = field(default_factory=list)
    target_column: dict[str, Any] = field(default_factory=dict)
    held_out: dict[str, Any] = field(default_factory=dict)
    scores: list[dict[str, Any]] = field(default_factory=list)
    calibration: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    created: str = ""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict, compare=False)
    version: int = VERSION

    def to_json(self) -> dict[str, Any]:
        """The card as plain JSON: dicts, lists, text, numbers, None."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> Card:
        """The card that :meth:`to_json` gave; ValueError for what is none or comes from a newer restt."""
        if isinstance(content, dict) and isinstance(content.get("version"), int) and content["version"] > VERSION:
            raise ValueError(
                f"the model card has version {content['version']}, this restt reads up to {VERSION}: use a newer one"
            )
        card: Card = from_plain(cls("", ""), content, ("task", "target", "version"), "the model card")
        check_choice("task of the model card", card.task, TASKS)
        words = card.source.get("missing", [])
        if not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
            raise ValueError(f"'missing' of the source of a model card must be a list of texts, got {shown(words)}")
        for column in [*card.columns, *([card.target_column] if card.target_column else [])]:
            Column.from_json(column)
        return card


@dataclass(frozen=True, eq=False)
class FittedTable:
    """A fitted estimator and its card.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from restt.workflow import fit_table
    >>> data = pd.DataFrame(np.random.default_rng(0).random((40, 2)), columns=["a", "b"])
    >>> fitted = fit_table(data.assign(y=data.a * data.b), "y", effort="quick")
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
        part = unfinished(target.parent, f".{target.name}.")
        part.mkdir()
        try:
            self.estimator.save(part)
            write_bytes_atomic(part / README, readme(self.card).encode())
            card = replace(self.card, files={MODEL: _digest(part / MODEL)})
            write_json_atomic(part / CARD, card.to_json())
            if target.exists():
                for name in (README, CARD, MODEL):
                    os.replace(part / name, target / name)
            else:
                os.replace(part, target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        sync_folder(target)
        sync_folder(target.parent)
        return target


def as_fitted(model: str | PathLike[str] | FittedTable) -> FittedTable:
    """The model itself, or the one that lies in a folder."""
    return model if isinstance(model, FittedTable) else load_table(model)


def load_table(folder: str | PathLike[str]) -> FittedTable:
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
    if card.files.get(MODEL, digest := _digest(given / MODEL)) != digest:
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


def readme(card: Card) -> str:
    """The card as Markdown for people.

    >>> print(readme(Card("regression", "price", source={"file": "houses.csv", "rows": 50, "columns": 3})))
    # Model of `price`
    <BLANKLINE>
    Regression by a residual tensor train, fitted to 50 rows and 3 columns of `houses.csv`.
    ...
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("restt_app.workflow"),
        finalize=lambda value: value if isinstance(value, _Code) else _escaped(value),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(code=_Code.of, words=words, interval=lambda score: _Code(interval(score)), holds=holds)
    scores: dict[str, dict[str, Any]] = {}
    for score in card.scores:
        scores.setdefault(score["model"], {})[score["metric"]] = score
    metrics = list(dict.fromkeys(score["metric"] for score in card.scores))
    file = card.source.get("file") if card.source.get("file") != "-" else None
    return environment.get_template("model_readme.md.j2").render(card=card, scores=scores, metrics=metrics, file=file)


def _escaped(text: Any) -> str:
    r"""Text of one line that Markdown shows as it is: no tag, link, emphasis, code or end of a table's cell.

    >>> print(_escaped("<b> *a*\n[x](y)|"))
    &lt;b&gt; \*a\* \[x\]\(y)\|
    """
    line = html.escape(" ".join(str(text).split()), quote=False)
    return re.sub(r"([\\`*_\[\]|~#]|(?<=\])\()", r"\\\1", line)


class _Code(str):
    """Markdown that needs no more escaping."""

    @classmethod
    def of(cls, name: str) -> _Code:
        """A name as code where it is plain, else as text: a tag or a backtick would end the code."""
        return cls(f"`{name}`" if re.fullmatch(r"[\w .,:/-]+", name) else _escaped(name))


def interval(entry: dict[str, Any]) -> str:
    """Format a score with its interval.

    >>> interval({"value": 0.5, "low": 0.401, "high": 0.6})
    '0.5 [0.401, 0.6]'
    """
    return f"{entry['value']:.4g} [{entry['low']:.3g}, {entry['high']:.3g}]"


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
