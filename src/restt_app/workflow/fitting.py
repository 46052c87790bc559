"""From a table to a model with a card: what is predicted, an honest score, and the fit on all rows."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from restt._common.errors import check_choice, check_int, shown
from restt._common.provenance import provenance
from restt.estimators import ResTTClassifier, ResTTRegressor
from restt_app.workflow.card import TASKS, Card
from restt_app.workflow.columns import LISTED_LEVELS, Column, described, exact, left_out
from restt_app.workflow.layouts import Layout, split
from restt_app.workflow.scoring import COST, cost, score
from restt_app.workflow.table import Table, check_column, read_table

FEW_VALUES = 10  # a target of this few different whole numbers is taken as classes
MOST_CLASSES = 100
LEAST_ROWS = 10
FIT_ROWS = 200_000  # the final fit draws this many rows: scales and posterior are learned from some thousands anyway

Progress = Callable[[str, float], None]  # what was done last, and the share of the whole that is done


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
        return Column.from_json(self.card.target_column)

    def save(self, folder: str | PathLike[str], *, force: bool = False) -> Path:
        """Write the model folder, whole or not at all.

        In an existing one, ``force`` replaces the model's files if they are as they were written; all others stay.
        """
        from restt_app.workflow.folder import save

        return save(self, folder, force=force)


def fit_table(
    data: Any,
    target: str,
    *,
    task: str = "auto",
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
    delimiter: str = "auto",
    encoding: str = "auto",
    missing: Sequence[str] = (),
    category: Sequence[str] = (),
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    layout: Layout = (),
) -> FittedTable:
    """Fit a model to a table of one's own, and score it on rows it has not seen.

    Parameters
    ----------
    data : path, "-", data frame or Table
        See :func:`read_table`, as for the last seven parameters, which a Table has been read with already.
    target : str
        The column to predict. Rows without it are left out.
    task : {"auto", "regression", "classification"}
        ``"auto"``: numbers of more than 10 different values, or that are not whole, are regression.
    parameters : mapping, optional
        Of :class:`restt.ResTTRegressor` or :class:`restt.ResTTClassifier`.
    seed : int
        Of the split, the fit and the resamples.
    device : str
        As the estimators take it.
    progress : callable, optional
        ``progress(what, share)`` is called after each fit.

    Returns
    -------
    FittedTable
    """
    began = time.monotonic()
    check_choice("task", task, ("auto", *TASKS))
    check_int("seed", seed, minimum=0, maximum=2**32 - 1)
    options: dict[str, Any] = {
        "missing": missing,
        "category": category,
        "drop": drop,
        "keep": keep,
        "layout": layout,
    }
    if isinstance(data, Table):
        if given := [name for name, value in options.items() if value]:
            raise ValueError(f"{given[0]} is told to read_table, and data has been read already")
        table = data
    else:
        table = read_table(data, delimiter=delimiter, encoding=encoding, **options)
    check_column("target", target, list(table.columns))
    if target not in table.values:
        raise ValueError(f"drop names the target {target!r}, which cannot be left out")
    columns = {name: column for name, column in table.columns.items() if name != target}
    notes = [*table.notes, *left_out(columns.values())]
    kind, y, rows = _target(table, target, task, notes)
    estimator = _estimator(kind, parameters or {}, seed, device)
    if not any(column.used for column in columns.values()):
        reasons = "; ".join(f"{name!r} was {column.note}" for name, column in list(columns.items())[:5])
        raise ValueError(f"no column is left to predict {target!r} from" + (f": {reasons}" if reasons else ""))

    done, last = 0.0, 1.25 * COST["ResTT"]  # the last fit has a quarter more rows
    total = cost(len(rows)) + last

    def step(what: str, spent: float) -> None:
        nonlocal done
        done += spent
        if progress is not None:
            progress(what, min(done / total, 1.0))

    if len(rows) > FIT_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(rows, FIT_ROWS, replace=False))
        y = y[np.searchsorted(_present(table, target), rows)]
        notes.append(f"the model was fitted to {FIT_ROWS} of the rows, drawn at random")
    classes = np.unique(y) if kind == "classification" else None
    x = table.frame(None if len(rows) == table.rows else rows, without=target)
    honest = score(lambda: _estimator(kind, parameters or {}, seed, device), x, y, classes, seed, step)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        estimator.fit(x, y)
    notes += dict.fromkeys(" ".join(str(one.message).split()) for one in told)
    step("fitting all rows", last)
    card = Card(
        task=kind,
        target=target,
        classes=[] if classes is None else classes.tolist(),
        source={**table.source, "rows_used": len(rows)},
        columns=[_kept(column, table.values.get(name)) for name, column in columns.items()],
        target_column=described(
            target, table.columns[target].kind, table.columns[target].layout, table.values[target], keep=True
        ).to_json(),
        held_out=honest.held_out,
        scores=honest.scores,
        calibration=honest.calibration,
        settings={"seed": seed, "device": device, **dict(parameters or {})},
        versions=(origin := provenance(seed=seed))["versions"],
        created=origin["date"],
        seconds=round(time.monotonic() - began, 2),
        notes=notes,
        stored=_stored(len(honest.calibration.get("rows", []))),
    )
    return FittedTable(estimator, card)


def _kept(column: Column, values: Any) -> dict[str, Any]:
    """A column's entry in the card: no value or unit of one that is left out, no level that only one row has."""
    entry = column.to_json()
    if not column.used:
        entry["layout"] = split(column.layout)[1] if column.kind == "number" else column.layout
        return {name: value for name, value in entry.items() if name not in ("range", "levels")}
    if column.levels is None:
        return entry
    counts = values.value_counts()
    return {**entry, "levels": [level for level in column.levels if counts[level] > 1]}


def _stored(scored_rows: int) -> list[str]:
    """What of the table a model folder holds, a sentence each."""
    pairs = f"the target of {scored_rows} held-out rows beside its predictions, " if scored_rows else ""
    return [
        "card.json holds of a column that is left out its name and how many values are missing or different, no value.",
        "card.json holds of a column in use its least and largest value or date, or the levels that two rows or more "
        f"share, at most {LISTED_LEVELS}.",
        f"card.json holds of the target {pairs}its classes or its least and largest value.",
        "model.safetensors holds levels and may hold rows of the columns in use, from which it computes intervals: "
        "give it only to those who may see them.",
    ]


def _estimator(task: str, parameters: Mapping[str, Any], seed: int, device: str) -> Any:
    kind: Any = ResTTRegressor if task == "regression" else ResTTClassifier
    known = set(signature(kind).parameters) - {"random_state", "device", "verbose", "checkpoint_dir", "warm_start"}
    if unknown := sorted(set(parameters) - known):
        raise ValueError(
            f"parameters has {unknown[0]!r}, which {kind.__name__} does not take here; known: {sorted(known)}"
        )
    return kind(**parameters, random_state=seed, device=device)


def _present(table: Table, target: str) -> np.ndarray:
    """Numbers of the rows that have the target."""
    values = table.values[target]
    return np.flatnonzero(~(np.isnan(values) if isinstance(values, np.ndarray) else values.isna()))


def _target(table: Table, target: str, task: str, notes: list[str]) -> tuple[str, np.ndarray, np.ndarray]:
    """The task, the target's values or labels, and the rows that have one; ValueError for what cannot be learned."""
    column, values = table.columns[target], table.values[target]
    rows = _present(table, target)
    if column.kind == "date":
        raise ValueError(f"target {target!r} holds dates: make a number of them first, such as days until then")
    if len(rows) < table.rows:
        notes.append(f"{table.rows - len(rows)} rows without a value in {target!r} were left out")
    if len(rows) < LEAST_ROWS:
        raise ValueError(f"{len(rows)} rows have a value in the target {target!r}: at least {LEAST_ROWS} are needed")
    labels = class_labels(column, table.labels[target][rows]) if target in table.labels else None
    distinct = column.distinct if labels is None else len(np.unique(labels))
    if distinct == 1:
        only = values[rows[0]]
        raise ValueError(
            f"target {target!r} has one value, {shown(_plain(only))}, in all rows: there is nothing to predict"
        )
    numeric = column.kind == "number"
    whole = bool(numeric and (values[rows] == np.round(values[rows])).all())
    few = distinct == 2 or (whole and distinct <= FEW_VALUES)
    if task == "auto":
        task = "regression" if numeric and not few else "classification"
        counted = f"{distinct} different {'numbers' if numeric else 'labels'}"
        notes.append(f"{task}, since {target!r} has {counted}; the task can be named instead")
    if task == "regression":
        if not numeric:
            wrong = shown(_plain(values[rows[0]]))
            raise ValueError(f"target {target!r} must hold numbers for regression, got {wrong} in row {rows[0] + 1}")
        return task, values[rows], rows
    if labels is None or distinct > MOST_CLASSES:
        raise ValueError(
            f"target {target!r} has {distinct} different values, and at most {MOST_CLASSES} classes are taken: "
            "is it the right column, or are its numbers written as text?"
        )
    found, counts = np.unique(labels, return_counts=True)
    rare = found[counts < 2].tolist()
    if len(found) - len(rare) < 2:
        raise ValueError(
            f"target {target!r} must have two classes of at least 2 rows each, got {_counted(found, counts)}: "
            "name another task or target"
        )
    if rare:
        notes.append(f"the class {shown(rare[0])} of {target!r} is in one row only: little is learned about it")
    return task, labels, rows


def _counted(labels: np.ndarray, counts: np.ndarray) -> str:
    pairs = list(zip(labels.tolist(), counts.tolist(), strict=True))
    return ", ".join(f"{shown(label)} {count} times" for label, count in pairs[:4]) + (", …" if len(pairs) > 4 else "")


def class_labels(column: Column, spelled: Any) -> np.ndarray:  # (B,)
    """Classes of a target's values, a Categorical without missing ones, as the table spells them.

    Labels are integers where all are whole numbers in their usual form, booleans where all are True and False, else
    texts. Values that mean the same, such as 1 and 1.0 or yes and YES, get the spelling that is most frequent.

    >>> import pandas as pd
    >>> class_labels(Column("y", "number", "1234.5", 0, 2), pd.Categorical(["1.0", "2", "1.0", "1"]))
    array(['1.0', '2', '1.0', '1.0'], dtype=object)
    """
    counts = np.bincount(spelled.codes, minlength=len(spelled.categories))
    order = [place for place in np.argsort(-counts, kind="stable") if counts[place]]
    found = [spelled.categories[place] for place in order]
    usual: dict[Any, Any] = {}
    for key, label in zip(keys := exact(column.kind, column.layout, found), found, strict=True):
        usual.setdefault(key, label)
    chosen: Any = [usual[key] for key in keys]
    if all(isinstance(label, (bool, np.bool_)) for label in chosen):
        names = np.array(chosen, dtype=bool)
    elif None not in (whole := [_integer(label) for label in chosen]):
        names = np.array(whole, dtype=np.int64)
    else:
        names = np.array([str(label) for label in chosen], dtype=object)
    placed = np.zeros(len(counts), dtype=np.int64)
    placed[order] = np.arange(len(order))
    return names[placed[spelled.codes]]


def _integer(label: Any) -> int | None:
    """The integer that a label is or is spelled as, if it has 64 bits at most."""
    if isinstance(label, str):
        number = int(label) if re.fullmatch(r"0|-?[1-9]\d{0,18}", label, re.ASCII) else None
    else:
        number = int(label) if isinstance(label, (int, float, np.number, Decimal)) and label == int(label) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
