"""From a table to a model with a card: what is predicted, an honest score, and the fit on all rows."""

from __future__ import annotations

import time as clock
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from restt._common.errors import check_choice, check_int
from restt._common.provenance import provenance
from restt.estimators import ResTTClassifier, ResTTRegressor
from restt_app.workflow.card import TASKS, Card
from restt_app.workflow.columns import LISTED_LEVELS, Column, described, left_out
from restt_app.workflow.hints import dependence, imbalance, leaks
from restt_app.workflow.layouts import Layout, split
from restt_app.workflow.rows import known_answers, read_rows
from restt_app.workflow.scoring import COST, Scorer
from restt_app.workflow.splits import ScoringSettings, group_codes, split_rows
from restt_app.workflow.table import Table, check_column, read_table
from restt_app.workflow.target import present_rows, read_target
from restt_app.workflow.weak_groups import as_categories

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
    effort: str = "auto",
    group: str | None = None,
    time: str | None = None,
    test: Any = None,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
    first: Callable[[FittedTable], None] | None = None,
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
    effort : {"quick", "auto", "best"}
        Of the estimator.
    group : str, optional
        A column whose rows of one value are never both fitted to and scored on; the model does not get it.
    time : str, optional
        A column of dates or numbers: the latest fifth of the rows is scored on.
    test : path or data frame, optional
        Rows to score on instead. The model is fitted to all rows of ``data``.
    parameters : mapping, optional
        Of :class:`restt.ResTTRegressor` or :class:`restt.ResTTClassifier`.
    seed : int
        Of the split, the fit and the resamples.
    device : str
        As the estimators take it.
    progress : callable, optional
        ``progress(what, share)`` is called after each fit.
    notice : callable, optional
        Called with each note as soon as it is known; those on the table before anything is fitted.
    first : callable, optional
        Called with a model of effort ``"quick"`` before the one that is returned is fitted.

    Returns
    -------
    FittedTable
    """
    began = clock.monotonic()
    check_choice("task", task, ("auto", *TASKS))
    check_int("seed", seed, minimum=0, maximum=2**32 - 1)
    options: dict[str, Any] = {"missing": missing, "category": category, "drop": drop, "keep": keep, "layout": layout}
    if isinstance(data, Table):
        if given := [name for name, value in options.items() if value]:
            raise ValueError(f"{given[0]} is told to read_table, and data has been read already")
        table = data
    else:
        table = read_table(data, delimiter=delimiter, encoding=encoding, **options)
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
    notes.add(table.notes, left_out(columns.values()))
    settings = {**({} if effort == "auto" else {"effort": effort}), **dict(parameters or {})}
    before: list[str] = []
    kind, y, rows = read_target(table, target, task, before)
    notes.add(before)
    _estimator(kind, settings, seed, device)._validate_params()
    if not any(column.used for column in columns.values()):
        reasons = "; ".join(f"{name!r} was {column.note}" for name, column in list(columns.items())[:5])
        raise ValueError(f"no column is left to predict {target!r} from" + (f": {reasons}" if reasons else ""))
    if len(rows) > FIT_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(rows, FIT_ROWS, replace=False))
        y = y[np.searchsorted(present_rows(table, target), rows)]
        notes.add([f"the model was fitted to {FIT_ROWS} of the rows, drawn at random"])
    classes = np.unique(y) if kind == "classification" else None
    x = table.frame(None if len(rows) == table.rows else rows, without=target)
    if test is None and group is None and time is None:
        notes.add(dependence(columns, table.values, table.rows))
    notes.add(leaks(x, y, classes, target), imbalance(y, target) if classes is not None else [])
    card = Card(
        task=kind,
        target=target,
        classes=[] if classes is None else classes.tolist(),
        source={**table.source, "rows_used": len(rows)},
        columns=[_kept(column, table.values.get(name)) for name, column in columns.items()],
        target_column=described(
            target, table.columns[target].kind, table.columns[target].layout, table.values[target], keep=True
        ).to_json(),
        versions=(origin := provenance(seed=seed))["versions"],
        created=origin["date"],
    )
    scored_x, scored_y = x, y
    if test is not None:
        read = read_rows(card, test, delimiter=delimiter, encoding=encoding, missing=missing)
        more, answers = known_answers(card, read)
        notes.add([f"test: {note}" for note in read.notes])
        scored_x = as_categories(pd.concat([_plain_texts(x), more], ignore_index=True))
        scored_y = np.concatenate([y, answers])
        held = [(np.arange(len(y)), len(y) + np.arange(len(answers)))]
        splits, method = held, "a table of their own"
    else:
        splits, method = split_rows(
            y,
            None if classes is None else y,
            seed,
            ScoringSettings(),
            groups=None if group is None else group_codes(table.values[group])[rows],
            times=None if time is None else _times(table, time)[rows],
        )
    scorer = Scorer(scored_x, scored_y, classes, splits, method, seed)

    def fitted(settings: dict[str, Any], done: float, until: float) -> FittedTable:
        level = settings.get("effort", "auto")
        last = COST.get(level, COST["auto"])
        total, spent = scorer.cost(level) + last, 0.0

        def step(what: str, cost: float) -> None:
            nonlocal spent
            spent += cost
            if progress is not None:
                progress(what, done + (until - done) * min(spent / total, 1.0))

        honest = scorer.score(lambda: _estimator(kind, settings, seed, device), level, step)
        estimator = _estimator(kind, settings, seed, device)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            estimator.fit(x, y)
        notes.add(list(dict.fromkeys(" ".join(str(one.message).split()) for one in told)))
        step("fitting all rows", last)
        return FittedTable(
            estimator,
            replace(
                card,
                held_out=honest.held_out,
                scores=honest.scores,
                calibration=honest.calibration,
                settings={"seed": seed, "device": device, **_named(group=group, time=time), **settings},
                seconds=round(clock.monotonic() - began, 2),
                notes=list(notes.all),
                stored=_stored(len(honest.calibration.get("rows", []))),
            ),
        )

    share = 0.0
    level = settings.get("effort", "auto")
    if first is not None and level != "quick":
        share = COST["quick"] / (COST["quick"] + COST.get(level, COST["auto"]))
        first(fitted({**settings, "effort": "quick"}, 0.0, share))
    return fitted(settings, share, 1.0)


class _Notes:
    """Sentences on a table, each once and told at once."""

    def __init__(self, notice: Callable[[str], None] | None) -> None:
        self.all: list[str] = []
        self._notice = notice

    def add(self, *lists: Sequence[str]) -> None:
        for note in [note for notes in lists for note in notes]:
            if note not in self.all:
                self.all.append(note)
                if self._notice is not None:
                    self._notice(note)


def _named(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _times(table: Table, name: str) -> np.ndarray:
    values = table.values[name]
    if not isinstance(values, np.ndarray):
        raise ValueError(f"time must name a column of dates or numbers, and {name!r} holds categories")
    if np.isnan(values).any():
        row = int(np.flatnonzero(np.isnan(values))[0]) + 1
        raise ValueError(f"time must be there in every row, and {name!r} is missing in row {row}")
    return values


def _plain_texts(frame: Any) -> Any:
    return frame.astype({name: object for name in frame.columns if frame[name].dtype == "category"})


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
