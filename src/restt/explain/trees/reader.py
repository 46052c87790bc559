"""Ensembles as a reader of a library's model returns them, and helpers that readers share.

Readers are functions ``read(model, kind)`` that return an :class:`Ensemble`; ``kind`` is the name of the class that
they know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from restt._common.errors import shown


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree as arrays over its nodes; ``column`` is negative at a leaf.

    A number goes left where it is not above the threshold. A category goes left where its code is in the node's list,
    or, without ``listed_left``, where it is not.
    """

    column: np.ndarray  # (K,) int
    left: np.ndarray  # (K,) int
    right: np.ndarray  # (K,) int
    threshold: np.ndarray  # (K,) float64
    missing_left: np.ndarray  # (K,) bool
    value: np.ndarray  # (K, D) of leaves
    codes: dict[int, np.ndarray] = field(default_factory=dict)  # by node
    listed_left: bool = True


@dataclass(frozen=True, eq=False)
class Ensemble:
    """The trees of a library's model."""

    library: str
    names: tuple[str, ...]  # C
    outputs: tuple[str, ...]  # D
    scale: str  # what the outputs are: "y", "raw score", "probability"
    trees: Sequence[Tree]
    constant: np.ndarray  # (D,)
    numbers: Callable[[Any], np.ndarray]  # table -> (B, C) as the splits compare them, NaN where missing
    levels: Mapping[int, list[Any]] = field(default_factory=dict)  # by column: what a code stands for


class Split(NamedTuple):
    """A nested node that is no leaf."""

    column: int
    left: Any
    right: Any
    threshold: float = 0.0
    missing_left: bool = False
    codes: Sequence[int] | None = None


def nested_tree(root: Any, read: Callable[[Any], Split | np.ndarray], listed_left: bool = True) -> Tree:
    """A tree of nested nodes; ``read`` makes of each its split, or at a leaf its value (D,)."""
    nodes, parsed = [root], []
    for node in nodes:  # grows while it is read
        parsed.append(read(node))
        if isinstance(parsed[-1], Split):
            nodes += [parsed[-1].left, parsed[-1].right]
    leaf = Split(-1, None, None)
    splits = [node if isinstance(node, Split) else leaf for node in parsed]
    nothing = np.zeros(len(next(node for node in parsed if not isinstance(node, Split))))
    # Children are listed two by two, in the order of their parents; those of a leaf are not read.
    left = 2 * np.cumsum([split is not leaf for split in splits]) - 1
    return Tree(
        np.array([split.column for split in splits]),
        left,
        left + 1,
        np.array([split.threshold for split in splits]),
        np.array([split.missing_left for split in splits]),
        np.stack([nothing if isinstance(node, Split) else node for node in parsed]),
        {place: np.asarray(split.codes) for place, split in enumerate(splits) if split.codes is not None},
        listed_left,
    )


def output_names(model: Any, count: int) -> tuple[str, ...]:
    """Names of the outputs: the classes, of two with one output the second; y for numbers."""
    classes = getattr(model, "classes_", None)
    names = () if classes is None else tuple(map(str, np.asarray(classes).tolist()))
    if len(names) == max(2, count):
        return names[1:] if count == 1 else names
    return ("y",) if count == 1 else tuple(f"y{place}" for place in range(count))


def column_names(given: Iterable[Any] | None, count: int) -> tuple[str, ...]:
    """Names of the columns, numbered without any."""
    return tuple(map(str, given)) if given is not None else tuple(f"x{index}" for index in range(count))


def columns_of(X: Any, names: Sequence[str], named: bool) -> list[Any]:
    """The columns in the model's order; a frame's by name where ``named`` says that the model knows them."""
    labels = getattr(X, "columns", None)
    if labels is None:
        table = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
        if table.ndim == 2 and table.shape[1] == len(names):
            return list(table.T)
    elif named:
        # Models know numbers as text, and LightGBM has underscores for spaces.
        known = {str(label).replace(" ", "_"): label for label in labels} | {str(label): label for label in labels}
        absent = [name for name in names if name not in known]
        if absent:
            raise ValueError(f"X must have the columns of the fit, got a table without {shown(absent)}")
        return [X[known[name]] for name in names]
    elif len(labels) == len(names):
        return [X.iloc[:, n] if hasattr(X, "iloc") else X[label] for n, label in enumerate(labels)]
    raise ValueError(f"X must be a table of {len(names)} columns, got {shown(X)}")


def numbers_of(
    X: Any,
    names: Sequence[str],
    named: bool,
    *,
    single: bool = False,
    missing: bool = True,
    levels: Mapping[int, list[Any]] | None = None,
) -> np.ndarray:  # (B, C) float64
    """A table in float64, rounded to float32 first where ``single``; a level becomes its place, NaN where unknown."""
    parts = []
    for index, column in enumerate(columns_of(X, names, named)):
        known, dtype = (levels or {}).get(index), getattr(column, "dtype", None)
        if known is not None and not (isinstance(dtype, np.dtype) and dtype.kind in "fiub"):
            places = {level: place for place, level in enumerate(known)}
            parts.append(np.array([places.get(value, np.nan) for value in list(column)], dtype=np.float64))
            continue
        try:
            parts.append(np.asarray(column, dtype=np.float64))
        except (TypeError, ValueError):
            raise TypeError(f"X must hold numbers in column {names[index]!r}, got {shown(column)}") from None
    numbers = np.stack(parts, 1)
    if single:
        with np.errstate(over="ignore"):
            numbers = numbers.astype(np.float32).astype(np.float64)
    if not missing and np.isnan(numbers).any():
        index = int(np.flatnonzero(np.isnan(numbers).any(0))[0])
        raise ValueError(f"X has a missing value in column {names[index]!r}, which the model does not take")
    return numbers
