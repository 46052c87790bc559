"""Settings that may differ between runs: one value for all, or a sequence with one for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

PerRun = float | Sequence[float]


def per_run(name: str, value: Any, runs: int) -> list[Any]:
    """``value`` for each of the runs: repeated where it is one, checked for length where it is a sequence.

    >>> per_run("lr", 0.1, 2), per_run("lr", (0.1, 0.2), 2)
    ([0.1, 0.1], [0.1, 0.2])
    """
    values = as_list(value)
    if values is None:
        return [value] * runs
    if len(values) != runs:
        raise ValueError(f"{name} must be one value or one for each of the {runs} run(s), got {len(values)}")
    return values


def check_each(name: str, value: Any, check: Callable[[Any], Any]) -> None:
    """``check`` the value, or each one of a sequence."""
    values = as_list(value)
    if values is not None and not values:
        raise ValueError(f"{name} must be one value or one for each run, got an empty sequence")
    for item in [value] if values is None else values:
        check(item)


def as_list(value: Any) -> list[Any] | None:
    """The values of a sequence, array or tensor as a list; None for a single value."""
    if len(getattr(value, "shape", ())) > 0:
        return list(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    return None
