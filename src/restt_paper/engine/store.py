"""Cells, the smallest pieces of an experiment that are computed and stored, and the folder that holds their results."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from restt._common.errors import shown
from restt._common.files import write_json_atomic
from restt._common.provenance import provenance

# A file's name on every system, and never a hidden file or a way out of the folder.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
DIGEST_DIGITS = 8
# Settings that a cell's random numbers may start from; "seeds" beside "seed" is their number.
SEEDS = ("seed", "seeds", "splits")
FIELDS: dict[str, Any] = {
    "cell": str,
    "settings": dict,
    "provenance": dict,
    "wall_seconds": (int, float),
    "result": dict,
}
# Fields of every provenance; "dirty" is null where nobody knows whether the files differed from the commit.
ORIGIN: dict[str, Any] = {"commit": str, "device": str, "versions": dict, "dirty": (bool, type(None))}


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


Work = Callable[[Cell], Mapping[str, Any]]


class Store:
    """Results in ``folder``: computed once and never overwritten.

    Parameters
    ----------
    folder : path
        Made when the first result is written.
    device : str
        Where experiments compute; recorded with each result.
    command : str, optional
        The command that gives the results again; recorded too.

    Examples
    --------
    >>> store = Store(getfixture("tmp_path"))
    >>> cell = Cell("sums", "ten", {"terms": 10})
    >>> store.load(cell) is None
    True
    >>> store.compute(cell, lambda cell: {"sum": sum(range(cell.settings["terms"]))})["result"]
    {'sum': 45}
    >>> store.load(cell)["settings"]
    {'terms': 10}
    """

    def __init__(self, folder: str | PathLike[str], device: str = "cpu", command: str | None = None) -> None:
        self.folder = Path(folder)
        self.device = device
        self.command = command
        self._cache: dict[str, dict[str, Any] | None] | None = None
        self._nested_seconds = 0.0  # spent on cells that the present cell needs

    def read_only(self) -> Store:
        """A view that reads each file once; results written later are not seen."""
        other = Store(self.folder, self.device, self.command)
        other._cache = {}
        return other

    def hide(self, keys: Iterable[str]) -> None:
        """Treat the cells with these keys as missing, in a view of :meth:`read_only`."""
        assert self._cache is not None
        self._cache.update(dict.fromkeys(keys))

    def path(self, cell: Cell) -> Path:
        """The file of ``cell``, there or not."""
        return self.folder / f"{cell.key}.json"

    def load(self, cell: Cell) -> dict[str, Any] | None:
        """The whole file of a finished cell (``cell``, ``settings``, ``provenance``, ``wall_seconds``, ``result``)."""
        if self._cache is None:
            return self._read(cell)
        if cell.key not in self._cache:
            self._cache[cell.key] = self._read(cell)
        return self._cache[cell.key]

    def _read(self, cell: Cell) -> dict[str, Any] | None:
        path = self.path(cell)
        content = read_file(path)
        if content is not None and (content["cell"] != cell.title or content["settings"] != cell.settings):
            raise ValueError(f"{path} holds another cell, {content['cell']}; it was moved or changed by hand")
        return content

    def compute(self, cell: Cell, work: Work) -> dict[str, Any]:
        """The whole file of ``cell``, computed with ``work`` first where it is missing.

        NaN and infinity in the result become null, JSON's only word for them. ``wall_seconds`` leaves out other cells
        that ``work`` computed.
        """
        if (content := self.load(cell)) is not None:
            return content
        seeds = next((cell.settings[name] for name in SEEDS if name in cell.settings), None)
        origin = provenance(self.device, seed=seeds, command=self.command)
        outer, self._nested_seconds = self._nested_seconds, 0.0
        began = time.perf_counter()
        try:
            result = work(cell)
        finally:
            elapsed = time.perf_counter() - began
            own, self._nested_seconds = elapsed - self._nested_seconds, outer + elapsed
        if not isinstance(result, Mapping):
            raise TypeError(f"the result of {cell.key} must be a mapping, got {shown(result)}")
        content = {
            "cell": cell.title,
            "settings": cell.settings,
            "provenance": origin,
            "wall_seconds": round(own, 3),
            "result": _plain(result),
        }
        write_json_atomic(self.path(cell), content)
        written = self.load(cell)
        assert written is not None
        return written

    def compute_all(self, cells: Iterable[Cell], work: Work) -> list[dict[str, Any]]:
        """:meth:`compute` for each cell, with a line per cell begun, finished or already there."""
        wanted = list(cells)
        began = time.perf_counter()

        def say(finished: int, cell: Cell, event: str) -> None:
            seconds = time.perf_counter() - began
            print(f"[{finished}/{len(wanted)}, {seconds:.0f} s] {cell.title}: {event}", flush=True)

        contents = []
        for place, cell in enumerate(wanted):
            if (content := self.load(cell)) is not None:
                say(place + 1, cell, "already finished")
            else:
                say(place, cell, "begun")
                try:
                    content = self.compute(cell, work)
                except BaseException as error:
                    say(place, cell, f"stopped by {type(error).__name__}")
                    raise
                say(place + 1, cell, f"finished in {content['wall_seconds']:.1f} s")
            contents.append(content)
        return contents


def read_file(path: Path) -> dict[str, Any] | None:
    """The whole file at ``path``, None where there is none; anything but a whole results file is an error.

    >>> path = getfixture("tmp_path") / "half.json"
    >>> _ = path.write_text('{"cell": "table1/')
    >>> read_file(path)
    Traceback (most recent call last):
    ValueError: ...half.json is not a whole results file (Unterminated string ...); move it away or bring back a copy
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise _not_whole(path, str(error)) from error
    return parse_file(path, text)


def parse_file(path: str | PathLike[str], text: str) -> dict[str, Any]:
    """The results in ``text``, which came from ``path``."""
    try:
        content = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise _not_whole(path, str(error)) from error
    missing = [name for name in FIELDS if not isinstance(content, dict) or name not in content]
    if missing:
        raise _not_whole(path, f"it has no {', '.join(missing)}")
    assert isinstance(content, dict)
    wrong = [
        name for name, kind in FIELDS.items() if not isinstance(content[name], kind) or isinstance(content[name], bool)
    ]
    if "provenance" not in wrong:
        origin = content["provenance"]
        wrong += [f"provenance.{name}" for name, kind in ORIGIN.items() if not isinstance(origin.get(name), kind)]
    if wrong:
        raise _not_whole(path, f"{', '.join(wrong)} is not what it should be")
    return content


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _not_whole(path: str | PathLike[str], why: str) -> ValueError:
    return ValueError(f"{path} is not a whole results file ({why}); move it away or bring back a copy")


def _plain(value: Any) -> Any:
    """``value`` as JSON holds it: arrays as lists, NaN and infinity as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
