"""A folder of results, one JSON file per cell, that several processes can fill together."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from restt._common.errors import shown
from restt._common.files import write_json_atomic
from restt._common.lock import claimed
from restt._common.provenance import provenance
from restt_paper.engine.cell import Cell

LOCKS = ".locks"
# What a cell's random numbers may start from; "seeds" beside "seed" is their number.
SEEDS = ("seed", "seeds", "splits")
FIELDS: dict[str, Any] = {
    "cell": str,
    "settings": dict,
    "provenance": dict,
    "wall_seconds": (int, float),
    "result": dict,
}
# What every provenance has; "dirty" is null where nobody knows whether the files differed from the commit.
ORIGIN: dict[str, Any] = {"commit": str, "device": str, "versions": dict, "dirty": (bool, type(None))}

Work = Callable[[Cell], Mapping[str, Any]]


class Store:
    """Results in ``folder``: computed once, whoever asks, and never overwritten.

    Parameters
    ----------
    folder : path
        Made when the first result is written.
    device : str
        Where experiments compute; recorded with each result.
    command : str, optional
        What gives the results again; recorded too.

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
        self._hidden: frozenset[str] = frozenset()
        self._files: dict[Path, dict[str, Any] | None] | None = None
        self._here = _Thread()

    def without(self, keys: Iterable[str]) -> Store:
        """The same results as if those of the cells with these keys were not there."""
        other = Store(self.folder, self.device, self.command)
        other._hidden, other._files = self._hidden | frozenset(keys), self._files
        return other

    def as_it_is(self) -> Store:
        """The same results for reading alone: each file is read once, and what is written later is not seen."""
        other = self.without(())
        other._files = {}
        return other

    def path(self, cell: Cell) -> Path:
        """The file of ``cell``, there or not."""
        return self.folder / f"{cell.key}.json"

    def load(self, cell: Cell) -> dict[str, Any] | None:
        """The whole file of a finished cell (``cell``, ``settings``, ``provenance``, ``wall_seconds``, ``result``)."""
        if cell.key in self._hidden:
            return None
        path = self.path(cell)
        found = self._read(path)
        if found is not None and (found["cell"] != cell.title or found["settings"] != cell.settings):
            raise ValueError(f"{path} holds another cell, {found['cell']}; it was moved or changed by hand")
        return found

    def _read(self, path: Path) -> dict[str, Any] | None:
        if self._files is None:
            return read_file(path)
        if path not in self._files:
            self._files[path] = read_file(path)
        return self._files[path]

    def compute(self, cell: Cell, work: Work) -> dict[str, Any]:
        """The whole file of ``cell``, computing it with ``work`` first where nobody has.

        Waits while another process computes it; if that one dies, computes it here. NaN and infinity in the result
        become null, JSON's only word for them. ``wall_seconds`` leaves out other cells that ``work`` computed here.
        """
        if (found := self.load(cell)) is not None:
            return found
        if cell.key in self._here.computing:
            raise RuntimeError(f"{cell.key} needs its own result to be computed")
        with self._apart(), self._claim(cell, wait=True):
            return self._work(cell, work)

    def compute_all(self, cells: Iterable[Cell], work: Work) -> list[dict[str, Any]]:
        """:meth:`compute` for each cell, a line per cell begun, finished or skipped.

        Cells that other processes compute come last, so that processes sharing a folder share the work.
        """
        wanted = list(cells)
        progress = _Progress(len(wanted))
        with self._apart():
            held = []
            for cell in wanted:
                if self.load(cell) is not None:
                    progress.done(cell, "already finished")
                    continue
                with self._claim(cell, wait=False) as ours:
                    if ours:
                        self._with_progress(cell, work, progress)
                    else:
                        progress.say(cell, "another process computes it, later")
                        held.append(cell)
            for cell in held:
                progress.say(cell, "waiting for another process")
                with self._claim(cell, wait=True):
                    self._with_progress(cell, work, progress)
        return [self.compute(cell, work) for cell in wanted]

    def _with_progress(self, cell: Cell, work: Work, progress: _Progress) -> None:
        if self.load(cell) is not None:
            progress.done(cell, "finished by another process")
            return
        progress.say(cell, "begun")
        try:
            found = self._work(cell, work)
        except BaseException as error:
            progress.say(cell, f"stopped by {type(error).__name__}")
            raise
        progress.done(cell, f"finished in {found['wall_seconds']:.1f} s")

    def _work(self, cell: Cell, work: Work) -> dict[str, Any]:
        """Compute and write; the claim is ours."""
        if (found := self.load(cell)) is not None:
            return found
        here = self._here
        outer, here.inner = here.inner, 0.0
        here.computing.add(cell.key)
        seeds = next((cell.settings[name] for name in SEEDS if name in cell.settings), None)
        origin = provenance(self.device, seed=seeds, command=self.command)
        began = time.perf_counter()
        try:
            result = work(cell)
            seconds = time.perf_counter() - began - here.inner
        finally:
            here.computing.discard(cell.key)
            here.inner = outer
        if not isinstance(result, Mapping):
            raise TypeError(f"the result of {cell.key} must be a mapping, got {shown(result)}")
        write_json_atomic(
            self.path(cell),
            {
                "cell": cell.title,
                "settings": cell.settings,
                "provenance": origin,
                "wall_seconds": round(seconds, 3),
                "result": _plain(result),
            },
        )
        found = self.load(cell)
        assert found is not None
        return found

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """The time inside is no time of the cell whose work asked for it."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._here.inner += time.perf_counter() - began

    def _claim(self, cell: Cell, *, wait: bool) -> AbstractContextManager[bool]:
        return claimed(self.folder / LOCKS / f"{cell.key}.lock", wait=wait)


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
        found = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise _not_whole(path, str(error)) from error
    missing = [name for name in FIELDS if not isinstance(found, dict) or name not in found]
    if missing:
        raise _not_whole(path, f"it has no {', '.join(missing)}")
    assert isinstance(found, dict)
    wrong = [
        name for name, kind in FIELDS.items() if not isinstance(found[name], kind) or isinstance(found[name], bool)
    ]
    if "provenance" not in wrong:
        origin = found["provenance"]
        wrong += [f"provenance.{name}" for name, kind in ORIGIN.items() if not isinstance(origin.get(name), kind)]
    if wrong:
        raise _not_whole(path, f"{', '.join(wrong)} is not what it should be")
    return found


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _not_whole(path: str | PathLike[str], why: str) -> ValueError:
    return ValueError(f"{path} is not a whole results file ({why}); move it away or bring back a copy")


class _Thread(threading.local):
    """What the present thread computes; others compute meanwhile, at their own expense."""

    def __init__(self) -> None:
        self.computing: set[str] = set()
        self.inner = 0.0  # seconds the cell now being computed has spent on cells it needs


class _Progress:
    """One line per event with a running count and the time since the start."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.finished = 0
        self.began = time.perf_counter()

    def say(self, cell: Cell, what: str) -> None:
        elapsed = time.perf_counter() - self.began
        print(f"[{self.finished}/{self.total}, {elapsed:.0f} s] {cell.title}: {what}", flush=True)

    def done(self, cell: Cell, what: str) -> None:
        self.finished += 1
        self.say(cell, what)


def _plain(value: Any) -> Any:
    """What JSON can hold: arrays as lists, NaN and infinity as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
