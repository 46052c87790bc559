"""The model card: source and columns of a model, its scores on held-out rows, and how it was made, as plain JSON.

The card lies as ``card.json`` beside the model; pages and the next ``predict`` read it. Its keys:

``version``
    1; raised when a card of today could be misread by yesterday's code.
``task``
    ``"regression"`` or ``"classification"``.
``target``
    Name of the column that is predicted.
``classes``
    The labels in the order of the model's probabilities, spelled as in the file; empty for regression.
``source``
    ``file`` (its name without folders, ``"-"`` for standard input, None for a table in memory), ``sha256`` of its bytes
    (None in memory), ``rows`` and ``columns`` as read, ``rows_used`` by the final fit, and, of a text file,
    ``delimiter`` and ``encoding``.
``columns``
    One entry for each column of the file but the target, in the file's order: ``name``; ``kind``, one of ``number``,
    ``category``, ``boolean``, ``date``, or ``unread`` of a dropped one; ``missing``, how many values are, and
    ``distinct``, how many are different (both 0 where unread); ``used`` whether the model has it; ``inputs``, the names
    under which the model has it (a date may be several); ``note``, why it was left out or what was decided, or "".
    ``layout`` is how its text is written, such as ``1,234.5``, ``1234,5 kg`` or ``%m/%d/%Y``: new tables are read by
    it. Only of columns in use: the unit in ``layout``, ``range`` [least, largest] of numbers and of dates (as text), or
    ``levels``, those that two rows or more share, the most frequent first and at most 100.
``target_column``
    The same entry for the target.
``held_out``
    ``method`` (such as ``"5 folds"`` or ``"20 % of the rows"``), ``rows`` that were predicted without being seen,
    ``trained_on``, rows of each fit that predicted them, ``metrics`` of ResTT on them, by name, and ``seconds``, how
    long a fit of each model took.
``scores``
    ``{"model", "metric", "value", "low", "high"}`` of ``"ResTT"``, ``"linear"``, ``"boosting"`` and ``"mean"`` or
    ``"class shares"`` on the same rows. Metrics: ``r2`` and ``rmse``, or ``log_loss``, ``roc_auc``,
    ``average_precision``, ``brier`` and ``accuracy``. [low, high] holds 95 % of bootstrap resamples of the held-out
    rows.
``calibration``
    On the held-out rows. Regression: ``coverage``, pairs ``{"expected", "observed", "width"}`` of how many rows an
    interval should hold, how many it holds and how wide it is on average (none where the model has no intervals),
    ``fifths``, the same of the 90 % interval for fifths of the predictions from ``low`` to ``high``, and ``rows``, up
    to 500 of ``{"predicted", "observed", "low", "high"}`` (low and high of the 90 % interval, or None).
    Classification: ``of``, the class whose probability is meant (None: whichever was predicted), and ``bins`` of
    ``{"low", "high", "predicted", "observed", "rows"}``: mean probability and share of rows in which it was right;
    ``confusion``, see :func:`restt_app.workflow.metrics.confusion`. Both: ``groups`` with larger errors, see
    :func:`restt_app.workflow.metrics.weak_groups`.
``settings``
    The estimator's parameters that are not at their defaults, and ``seed``.
``versions``, ``created``, ``seconds``
    Of the software, when (UTC), and how long reading, scoring and fitting took.
``notes``
    Sentences a reader of the model should know, in the order they came up.
``stored``
    Sentences on what of the table the model folder holds.
``files``
    SHA-256 of each file of the folder by name, of ``card.json`` without this entry (JSON with sorted keys). Only files
    that are still the same are replaced by another model. Empty in a card that was not saved; no part of ``==``.

>>> card = Card(task="regression", target="y", notes=["one row had no y"])
>>> Card.from_json(card.to_json()) == card
True
"""

from __future__ import annotations

import html
import re
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from restt._common.errors import check_choice, shown
from restt_app.workflow.columns import Column
from restt_app.workflow.metrics import words

TASKS = ("classification", "regression")
VERSION = 1


@dataclass(frozen=True)
class Card:
    """What is known about a fitted table; the keys are described in :mod:`restt_app.workflow.card`."""

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
        if not isinstance(content, dict) or not isinstance(content.get("version"), int):
            raise ValueError(f"a model card must be a JSON object with a version, got {shown(content)}")
        if content["version"] > VERSION:
            raise ValueError(
                f"the model card has version {content['version']}, this restt reads up to {VERSION}: use a newer one"
            )
        known = {one.name for one in fields(cls)}
        if unknown := sorted(set(content) - known):
            raise ValueError(f"a model card has no entry {unknown[0]!r}; it has {sorted(known)}")
        if missing := sorted({"task", "target"} - set(content)):
            raise ValueError(f"the model card lacks {missing[0]!r}")
        check_choice("task of the model card", content["task"], TASKS)
        blank = cls("", "")
        for name, value in content.items():
            kind = type(getattr(blank, name))
            if not isinstance(value, (int, float) if kind is float else kind):
                raise ValueError(f"{name!r} of the model card must be a {kind.__name__}, got {shown(value)}")
        card = cls(**content)
        for column in [*card.columns, *([card.target_column] if card.target_column else [])]:
            Column.from_json(column)
        return card


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
    r"""Text of one line that Markdown shows as it is: no tag, link, emphasis, code or end of a table's cell.

    >>> print(_escaped("<b> *a*\n[x](y)|"))
    &lt;b&gt; \*a\* \[x\]\(y)\|
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
        missing = "" if column["kind"] == "unread" else str(column["missing"])
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
