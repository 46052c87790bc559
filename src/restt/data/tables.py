"""Tables: from CSV files without pandas, Boston and ALE from theirs, digits and diabetes from scikit-learn."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from restt._common.errors import check_choice, check_int, shown
from restt.data.catalog import Entry
from restt.data.dataset import Dataset

TASKS = ("auto", "classification", "regression")
DIGITS_FULL_SCALE = 16


def read_csv(
    path: str | os.PathLike[str],
    target: str | int,
    *,
    ignore: Sequence[str] = (),
    task: str = "auto",
    delimiter: str = ",",
    skip_lines: int = 0,
) -> Dataset:
    """A CSV file with one line of column names as a table: x (B, N) and y (B,) in float64, labels in int64.

    ``target`` is the column to predict, by name or by index from 0; columns named in ``ignore`` are left out. All
    other columns must hold finite numbers. A target of text, or ``task="classification"``, gives labels 0, 1, …
    whose names are ``classes``, in sorted order; equal numbers ("1", "1.0") are one class, named as spelled first.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "table.csv"
    >>> _ = path.write_text("a,b,kind\\n1,2,cat\\n3,4,dog\\n")
    >>> table = read_csv(path, target="kind")
    >>> table.x.tolist(), table.y.tolist(), table.classes
    ([[1.0, 2.0], [3.0, 4.0]], [0, 1], ('cat', 'dog'))
    """
    return parse_csv(Path(path).read_bytes(), target, Path(path).stem, str(path), ignore, task, delimiter, skip_lines)


def parse_csv(
    content: bytes,
    target: str | int,
    name: str,
    source: str,
    ignore: Sequence[str] = (),
    task: str = "auto",
    delimiter: str = ",",
    skip_lines: int = 0,
) -> Dataset:
    """``read_csv`` on the bytes of the file."""
    check_choice("task", task, TASKS)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{source} must be UTF-8 text, got {error}") from None
    names, lines, rows = _read_rows(text, source, delimiter, check_int("skip_lines", skip_lines, minimum=0))
    wanted = _target_index(names, target)
    unknown = sorted(set(ignore) - set(names))
    if unknown:
        raise ValueError(f"ignore must name columns of {source}, got {unknown}; the columns are {names}")
    kept = [i for i, column in enumerate(names) if i != wanted and column not in ignore]
    if not kept:
        raise ValueError(f"{source} must have a column besides the target {names[wanted]!r}")
    columns = [[_number(row[i], names[i], line, source) for row, line in zip(rows, lines, strict=True)] for i in kept]
    values = [row[wanted].strip() for row in rows]
    y, classes = _read_target(values, names[wanted], lines, source, task)
    return Dataset(
        name=name,
        rows=(torch.tensor(columns, dtype=torch.float64).T.contiguous(), y),
        feature_names=tuple(names[i] for i in kept),
        target_name=names[wanted],
        classes=classes,
        source=source,
    )


def _read_rows(text: str, source: str, delimiter: str, skip: int) -> tuple[list[str], list[int], list[list[str]]]:
    # Strict: a quote that is never closed, or closed in the middle of a field, is an error and swallows no row.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    numbered, line = [], 1
    try:
        for row in reader:
            if row:
                numbered.append((line, row))
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{source} is no CSV file from line {line} on: {error}") from None
    numbered = numbered[skip:]
    if len(numbered) < 2:
        raise ValueError(f"{source} must have a line of column names and at least one row, got {len(numbered)} line(s)")
    names = [column.strip() for column in numbered[0][1]]
    if len(set(names)) != len(names):
        twice = sorted({column for column in names if names.count(column) > 1})
        raise ValueError(f"{source} must have distinct column names, got {twice} more than once")
    for line, row in numbered[1:]:
        if len(row) != len(names):
            raise ValueError(f"line {line} of {source} must have {len(names)} fields, got {len(row)}")
    return names, [line for line, _ in numbered[1:]], [row for _, row in numbered[1:]]


def _target_index(names: list[str], target: str | int) -> int:
    if isinstance(target, str):
        if target not in names:
            raise ValueError(f"target must be one of the columns {names}, got {target!r}")
        return names.index(target)
    return check_int("target", target, minimum=-len(names), maximum=len(names) - 1) % len(names)


def _number(field: str, column: str, line: int, source: str) -> float:
    number = _as_number(field)
    if number is None:
        what = "nothing" if not field.strip() else shown(field)
        raise ValueError(f"column {column!r} must hold numbers, got {what} on line {line} of {source}")
    if not math.isfinite(number):
        raise ValueError(f"column {column!r} must hold finite numbers, got {field.strip()} on line {line} of {source}")
    return number


def _as_number(field: str) -> float | None:
    """The number a field spells, or None; Python's underscores between digits are no numbers here."""
    try:
        return None if "_" in field else float(field)
    except ValueError:
        return None


def _read_target(
    values: list[str], column: str, lines: list[int], source: str, task: str
) -> tuple[Tensor, tuple[str, ...]]:
    spelled = [_as_number(value) for value in values]
    for value, number, line in zip(values, spelled, lines, strict=True):
        if not value or (number is not None and math.isnan(number)):
            raise ValueError(
                f"the target {column!r} must be given in every row, got {value or 'nothing'} on line {line} of {source}"
            )
        if "\n" in value or "\r" in value:
            raise ValueError(
                f"the target {column!r} must stand on one line, got {shown(value)} from line {line} of {source} on: "
                "is a quote not closed?"
            )
    text = any(number is None for number in spelled)
    if task == "classification" and not text:
        return _numbered_classes(values, column, lines, source)
    if task != "regression" and text:
        classes = tuple(sorted(set(values)))
        index = {label: code for code, label in enumerate(classes)}
        return torch.tensor([index[value] for value in values]), classes
    numbers = [_number(value, column, line, source) for value, line in zip(values, lines, strict=True)]
    return torch.tensor(numbers, dtype=torch.float64), ()


def _numbered_classes(values: list[str], column: str, lines: list[int], source: str) -> tuple[Tensor, tuple[str, ...]]:
    """Classes that are numbers: one for each number, however it is spelled, named as it is spelled first."""
    numbers = [_number(value, column, line, source) for value, line in zip(values, lines, strict=True)]
    names: dict[float, str] = {}
    for number, value in zip(numbers, values, strict=True):
        names.setdefault(number, value)
    order = sorted(names)
    index = {number: code for code, number in enumerate(order)}
    return torch.tensor([index[number] for number in numbers]), tuple(names[number] for number in order)


def load_boston(entry: Entry, files: Sequence[tuple[Path, bytes]]) -> Dataset:
    """x (506, 13), target MEDV; the line of sizes above the column names is skipped."""
    return _from_csv(entry, files, target="MEDV", skip_lines=1)


def load_ale(entry: Entry, files: Sequence[tuple[Path, bytes]]) -> Dataset:
    """x (107, 4), target ale; ``sd_ale`` is a by-product of measuring the target and would give it away."""
    return _from_csv(entry, files, target="ale", ignore=("sd_ale",))


def load_digits(entry: Entry) -> Dataset:
    """x (1797, 64) in [0, 1], float32."""
    from sklearn import datasets

    bunch = datasets.load_digits()
    return Dataset(
        name=entry.name,
        rows=(torch.tensor(bunch.data / DIGITS_FULL_SCALE, dtype=torch.float32), torch.tensor(bunch.target).long()),
        feature_names=tuple(bunch.feature_names),
        target_name="label",
        classes=tuple(str(label) for label in bunch.target_names),
        source=entry.source,
        description=entry.description,
    )


def load_diabetes(entry: Entry) -> Dataset:
    """x (442, 10) as scaled by scikit-learn, float64."""
    from sklearn import datasets

    bunch = datasets.load_diabetes()
    return Dataset(
        name=entry.name,
        rows=(torch.tensor(bunch.data), torch.tensor(bunch.target)),
        feature_names=tuple(bunch.feature_names),
        target_name="progression",
        source=entry.source,
        description=entry.description,
    )


def _from_csv(
    entry: Entry, files: Sequence[tuple[Path, bytes]], target: str, ignore: Sequence[str] = (), skip_lines: int = 0
) -> Dataset:
    path, content = files[0]
    table = parse_csv(content, target, entry.name, str(path), ignore, skip_lines=skip_lines)
    return replace(table, source=entry.source, description=entry.description)
