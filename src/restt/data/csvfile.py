"""Tables from CSV files, without pandas."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from restt._common.errors import check_choice, check_int, shown
from restt.data.dataset import Dataset

TASKS = ("auto", "classification", "regression")


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
    whose names are ``classes``, in sorted order.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "table.csv"
    >>> _ = path.write_text("a,b,kind\\n1,2,cat\\n3,4,dog\\n")
    >>> table = read_csv(path, target="kind")
    >>> table.x.tolist(), table.y.tolist(), table.classes
    ([[1.0, 2.0], [3.0, 4.0]], [0, 1], ('cat', 'dog'))
    """
    name = Path(path).stem
    text = Path(path).read_text(encoding="utf-8-sig")
    return parse_csv(text, target, name, str(path), ignore, task, delimiter, skip_lines)


def parse_csv(
    text: str,
    target: str | int,
    name: str,
    source: str,
    ignore: Sequence[str] = (),
    task: str = "auto",
    delimiter: str = ",",
    skip_lines: int = 0,
) -> Dataset:
    """``read_csv`` on the text of the file."""
    check_choice("task", task, TASKS)
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
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    numbered = [(reader.line_num, row) for row in reader if row]
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
    try:
        number = float(field)
    except ValueError:
        what = "nothing" if not field.strip() else shown(field)
        raise ValueError(f"column {column!r} must hold numbers, got {what} on line {line} of {source}") from None
    if not math.isfinite(number):
        raise ValueError(f"column {column!r} must hold finite numbers, got {field.strip()} on line {line} of {source}")
    return number


def _read_target(
    values: list[str], column: str, lines: list[int], source: str, task: str
) -> tuple[Tensor, tuple[str, ...]]:
    for value, line in zip(values, lines, strict=True):
        if not value or value.lower() == "nan":
            raise ValueError(
                f"the target {column!r} must be given in every row, got {value or 'nothing'} on line {line} of {source}"
            )
    text = any(not _is_number(value) for value in values)
    if task == "classification" or (task == "auto" and text):
        classes = tuple(sorted(set(values)) if text else sorted(set(values), key=float))
        index = {label: code for code, label in enumerate(classes)}
        return torch.tensor([index[value] for value in values]), classes
    numbers = [_number(value, column, line, source) for value, line in zip(values, lines, strict=True)]
    return torch.tensor(numbers, dtype=torch.float64), ()


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
