"""Argument checks whose messages name the argument, what came and what was expected; warnings at the caller's line."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Collection
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import Any

# Packages between a warning and the user's code: this one, and those that call it back.
_PASSED = ("restt", "sklearn", "joblib", "torch")


def shown(value: Any) -> str:
    """Return a short repr, so that a message never prints a whole array."""
    shape = getattr(value, "shape", None)
    if shape is not None and len(shape) > 0:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Give a warning that names the line of the user's code which called this package, perhaps through another."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and str(frame.f_globals.get("__name__")).split(".")[0] in _PASSED:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def check_int(name: str, value: Any, *, minimum: int | None = None, maximum: int | None = None) -> int:
    """Return ``value`` as an int within bounds; bool is refused since it is nearly always a mistake."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {shown(value)} of type {type(value).__name__}")
    number = int(value)
    if minimum is not None and number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {number}")
    if maximum is not None and number > maximum:
        raise ValueError(f"{name} must be at most {maximum}, got {number}")
    return number


def check_positive(name: str, value: Any, *, allow_zero: bool = False) -> float:
    """Return ``value`` as a finite float above zero."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {shown(value)} of type {type(value).__name__}")
    number = float(value)
    if not math.isfinite(number) or number < 0 or (number == 0 and not allow_zero):
        kind = "finite and at least 0" if allow_zero else "finite and above 0"
        raise ValueError(f"{name} must be {kind}, got {shown(value)}")
    return number


def check_choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be one of {sorted(choices)}, got {shown(value)} of type {type(value).__name__}")
    if value not in choices:
        raise ValueError(f"{name} must be one of {sorted(choices)}, got {value!r}")
    return value


def check_folder(name: str, path: str | PathLike[str]) -> Path:
    """Return ``path`` if it is a folder or one can be made there."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{name} must be a folder, got the file {str(folder)!r}")
    _check_above(name, "folder", folder)
    return folder


def check_new_file(name: str, path: str | PathLike[str]) -> Path:
    """Return ``path`` if it is a file or one can be written there."""
    file = Path(path)
    if file.is_dir():
        raise ValueError(f"{name} must be a file, got the folder {str(file)!r}")
    _check_above(name, "file", file)
    return file


def check_file(name: str, path: str | PathLike[str]) -> Path:
    """Return ``path`` if it is a file."""
    file = check_new_file(name, path)
    if not file.exists():
        raise FileNotFoundError(f"{name} must be a file, got {str(file)!r}, which is not there")
    return file


def _check_above(name: str, kind: str, path: Path) -> None:
    above = next((folder for folder in path.parents if folder.exists()), None)
    if above is not None and not above.is_dir():
        raise ValueError(f"{name} must be a {kind}, got {str(path)!r}, but {str(above)!r} is no folder")


def square_side(name: str, places: int) -> int:
    """Return the side of a square of this many places; ``name`` names them in an error.

    >>> square_side("pixels", 784)
    28
    >>> square_side("pixels", 10)
    Traceback (most recent call last):
    ValueError: pixels must form a square (such as 784 for 28×28), got 10
    """
    side = math.isqrt(max(places, 0))
    if places < 1 or side * side != places:
        raise ValueError(f"{name} must form a square (such as 784 for 28×28), got {places}")
    return side
