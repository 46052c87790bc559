"""From a table to a fitted model with a card: the target, scores on held-out rows, and the fit on all rows."""

from __future__ import annotations

import time as clock
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from restt import estimators
from restt._common.errors import check_choice, check_int
from restt._common.provenance import provenance
from restt_app.workflow.card import TASKS, Card, FittedTable
from restt_app.workflow.columns import LISTED_LEVELS, Column, check_column, described
from restt_app.workflow.layouts import split
from restt_app.workflow.predicting import known_targets, naming, read_rows
from restt_app.workflow.scoring import COST, Scorer, ScoringSettings, group_codes, split_rows
from restt_app.workflow.table import Table, read_table
from restt_app.workflow.target import dependence, leaks, read_target

EFFORTS = ("quick", "auto", "best")
FIT_ROWS = 200_000  # the final fit draws this many rows: scales and posterior are learned from some thousands anyway


def fit_table(
    data: Any,
    target: str,
    *,
    task: str = "auto",
    effort: str = "auto",
    group: str | None = None,
    time: str | None = None,
    test: Any = None,
    seed: int = 0,
    device: str = "auto",
    progress: Callable[[str, float], None] | None = None,
    notice: Callable[[str], None] | None = None,
    first: Callable[[FittedTable], None] | None = None,
    **options: Any,
) -> FittedTable:
    """Fit a model to a table of one's own, and score it on rows it has not seen.

    Parameters
    ----------
    data : path, "-", data frame or Table
        See :func:`read_table`.
    target : str
        The column to predict. Rows without it are left out.
    task : {"auto", "regression", "classification"}
        ``"auto"``: numbers of more than 10 different values, or that are not whole, are regression.
    effort : {"quick", "auto", "best"}
        Of the estimator.
    group : str, optional
        A column whose rows of one value are never both fitted to and scored on; the model does not get it.
    time : str, optional
        A column of dates or numbers: the latest fifth of the rows is scored on.
    test : path or data frame, optional
        Rows to score on instead. The model is fitted to all rows of ``data``.
    seed : int
        Of the split, the fit and the resamples.
    device : str
        As the estimators take it.
    progress : callable, optional
        ``progress(what, share)`` is called after each fit with what was done last, and the share of the whole.
    notice : callable, optional
        Called with each note as soon as it is known; those on the table before anything is fitted.
    first : callable, optional
        Called with a model of effort ``"quick"`` before the one that is returned is fitted.
    options
        Of :func:`read_table`: ``delimiter``, ``encoding``, ``missing``, ``category``, ``drop``, ``keep``, ``layout``.

    Returns
    -------
    FittedTable
    """
    began = clock.monotonic()
    check_choice("task", task, ("auto", *TASKS))
    check_choice("effort", effort, EFFORTS)
    check_int("seed", seed, minimum=0, maximum=2**32 - 1)
    if isinstance(data, Table) and options:
        raise ValueError(f"{next(iter(options))} is told to read_table, and data has been read already")
    table = data if isinstance(data, Table) else read_table(data, **options)
    for argument, name in (("target", target), ("group", group), ("time", time)):
        if name is not None:
            check_column(argument, name, list(table.columns))
            if name not in table.values:
                raise ValueError(f"drop names the {argument} {name!r}, which cannot be left out")
    if target in (group, time) or sum(value is not None for value in (group, time, test)) > 1:
        raise ValueError("at most one of group, time and test can be given, and neither is the target")
    if group is not None:
        grouped = replace(table.columns[group], used=False, inputs=[], note="left out: names the groups")
        table = replace(table, columns={**table.columns, group: grouped})
    columns = {name: column for name, column in table.columns.items() if name != target}
    notes = _Notes(notice)
    notes.add(table.notes)
    notes.add([f"column {column.name!r} is {column.note}" for column in columns.values() if not column.used])
    of_target: list[str] = []
    task, y, rows = read_target(table, target, task, of_target)
    if not any(column.used for column in columns.values()):
        reasons = "; ".join(f"{name!r} was {column.note}" for name, column in list(columns.items())[:5])
        raise ValueError(f"no column is left to predict {target!r} from" + (f": {reasons}" if reasons else ""))
    if len(rows) > FIT_ROWS:
        drawn = np.sort(np.random.default_rng(seed).choice(len(rows), FIT_ROWS, replace=False))
        rows, y = rows[drawn], y[drawn]
        of_target.append(f"the model was fitted to {FIT_ROWS} of the rows, drawn at random")
    classes = np.unique(y) if task == "classification" else None
    x = table.frame(None if len(rows) == table.rows else rows, without=target)
    if test is None and group is None and time is None:
        of_target += dependence(columns, table.values, table.rows)
    notes.add(of_target + leaks(x, y, classes, target))
    of = table.columns[target]
    origin = provenance(seed=seed)
    card = Card(
        task=task,
        target=target,
        classes=[] if classes is None else classes.tolist(),
        source={**table.source, "rows_used": len(rows)},
        columns=[_card_entry(column, table.values.get(name)) for name, column in columns.items()],
        target_column=described(target, of.kind, of.layout, table.values[target], keep=True).to_json(),
        versions=origin["versions"],
        created=origin["date"],
    )
    if test is not None:
        scorer = _test_scorer(card, x, y, test, table.reading, notes, seed)
    else:
        splits, method = split_rows(
            y,
            None if classes is None else y,
            seed,
            ScoringSettings(),
            groups=None if group is None else group_codes(table.values[group])[rows],
            times=None if time is None else _times(table, time, rows),
        )
        scorer = Scorer(x, y, classes, splits, method, seed)

    kind: Any = estimators.ResTTRegressor if task == "regression" else estimators.ResTTClassifier

    def fitted(level: str, done: float, until: float) -> FittedTable:
        last = COST[level]
        total, spent = scorer.cost(level) + last, 0.0

        def step(what: str, cost: float) -> None:
            nonlocal spent
            spent += cost
            if progress is not None:
                progress(what, done + (until - done) * min(spent / total, 1.0))

        make = partial(kind, effort=level, random_state=seed, device=device)
        scores = scorer.score(make, level, step)
        estimator = make()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator.fit(x, y)
        notes.add([" ".join(str(warning.message).split()) for warning in caught])
        step("fitting all rows", last)
        given = {"group": group, "time": time, "effort": None if level == "auto" else level}
        complete = replace(
            card,
            **scores,
            settings={"seed": seed, "device": device, **{key: value for key, value in given.items() if value}},
            seconds=round(clock.monotonic() - began, 2),
            notes=list(notes.all),
            stored=_stored(len(scores["calibration"].get("rows", []))),
        )
        return FittedTable(estimator, complete)

    share = 0.0
    if first is not None and effort != "quick":
        share = COST["quick"] / (COST["quick"] + COST[effort])
        first(fitted("quick", 0.0, share))
    return fitted(effort, share, 1.0)


class _Notes:
    """Sentences on a table, each once and reported at once."""

    def __init__(self, notice: Callable[[str], None] | None) -> None:
        self.all: list[str] = []
        self._notice = notice

    def add(self, notes: Sequence[str]) -> None:
        for note in notes:
            if note not in self.all:
                self.all.append(note)
                if self._notice is not None:
                    self._notice(note)


def _test_scorer(
    card: Card, x: Any, y: np.ndarray, test: Any, reading: Mapping[str, Any], notes: _Notes, seed: int
) -> Scorer:
    """Score models fitted to all rows on those of a further table, read as the first one was."""
    with naming("test"):
        rows = read_rows(card, test, **reading)
        more, answers = known_targets(card, rows)
    notes.add([f"test: {note}" for note in rows.notes])
    texts = [name for name in x.columns if x[name].dtype == "category"]
    both = pd.concat([frame.astype(dict.fromkeys(texts, object)) for frame in (x, more)], ignore_index=True)
    split = (np.arange(len(y)), len(y) + np.arange(len(answers)))
    classes = None if card.task == "regression" else np.unique(y)
    together = both.astype(dict.fromkeys(texts, "category"))
    return Scorer(together, np.concatenate([y, answers]), classes, [split], "a table of their own", seed)


def _times(table: Table, name: str, rows: np.ndarray) -> np.ndarray:
    values = table.values[name]
    if not isinstance(values, np.ndarray):
        raise ValueError(f"time must name a column of dates or numbers, and {name!r} holds categories")
    times = values[rows]
    if np.isnan(times).any():
        row = rows[int(np.isnan(times).argmax())] + 1
        raise ValueError(f"time must be there in every row, and {name!r} is missing in row {row}")
    return times


def _card_entry(column: Column, values: Any) -> dict[str, Any]:
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
    """Sentences on what of the table a model folder holds."""
    pairs = f"the target of {scored_rows} held-out rows beside its predictions, " if scored_rows else ""
    return [
        "card.json holds of a column that is left out its name and how many values are missing or different, no value.",
        "card.json holds of a column in use its least and largest value or date, or the levels that two rows or more "
        f"share, at most {LISTED_LEVELS}.",
        f"card.json holds of the target {pairs}its classes or its least and largest value.",
        "model.safetensors holds levels and may hold rows of the columns in use, from which it computes intervals: "
        "give it only to those who may see them.",
    ]
