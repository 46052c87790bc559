"""A cell: the smallest piece of an experiment that is computed, stored and resumed as one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from restt._common.errors import shown

# A file's name on every system, and never a hidden file or a way out of the folder.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
DIGEST_DIGITS = 8


@dataclass(frozen=True)
class Cell:
    """What is computed, and everything that fixes its result.

    Parameters
    ----------
    experiment, name : str
        Letters, digits, ``.``, ``-`` and ``_``.
    settings : mapping
        JSON values that fix the result, all that its computation reads: sizes, epochs, seeds, the recipe. Another
        setting is another cell. Held as JSON gives them back, so tuples become lists.
    needs : mapping
        Cells whose results this one builds on, by the name of the setting that holds their keys: what was chosen
        otherwise gives another result.

    Examples
    --------
    >>> cell = Cell("table4", "mnist-restt-r20", {"epochs": 100, "seeds": [0, 1]})
    >>> cell.key
    'table4/mnist-restt-r20-aaa8c566'
    >>> cell == Cell("table4", "mnist-restt-r20", {"seeds": (0, 1), "epochs": 100})
    True
    >>> Cell("table4", "mnist-restt-r20", {"epochs": 100}, {"rate": cell}).settings["rate"]
    'table4/mnist-restt-r20-aaa8c566'
    """

    experiment: str
    name: str
    settings: Mapping[str, Any] = field(hash=False)
    needs: Mapping[str, Cell] = field(default_factory=dict, hash=False, compare=False)

    def __post_init__(self) -> None:
        for what in ("experiment", "name"):
            text = getattr(self, what)
            if not isinstance(text, str) or not NAME.fullmatch(text):
                raise ValueError(f"{what} must be made of letters, digits, '.', '-' and '_', got {shown(text)}")
        if not isinstance(self.settings, Mapping):
            raise TypeError(f"settings must be a mapping, got {shown(self.settings)}")
        try:
            keys = {name: cell.key for name, cell in self.needs.items()}
            plain = json.loads(_canonical({**self.settings, **keys}))
        except (TypeError, ValueError) as error:
            raise TypeError(f"settings of {self.experiment}/{self.name} must be JSON values: {error}") from error
        object.__setattr__(self, "settings", plain)

    @property
    def title(self) -> str:
        """Experiment and name, for people."""
        return f"{self.experiment}/{self.name}"

    @cached_property
    def key(self) -> str:
        """Where the result lies in a results folder, without ``.json``."""
        digest = hashlib.sha256(_canonical(self.settings).encode()).hexdigest()
        return f"{self.title}-{digest[:DIGEST_DIGITS]}"


def _canonical(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
