"""An experiment of the paper in one object, its cells, and the store of their results.

A cell is the smallest piece that is computed and stored.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from restt._common.errors import shown
from restt._common.files import plain_json, write_json_atomic
from restt._common.provenance import provenance
from restt_paper.table import Table

if TYPE_CHECKING:
    from restt_paper.verdict import Target

# A file's name on every system, and never a hidden file or a way out of the folder.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
DIGEST_DIGITS = 8
# Settings that a cell's random numbers may start from; "seeds" beside "seed" is their number.
SEEDS = ("seed", "seeds", "splits")
# Parts of a results file and their types; "dirty" is null where it is unknown whether files differed from the commit.
PARTS: Mapping[str, Any] = {
    "cell": str,
    "settings": dict,
    "provenance": dict,
    "wall_seconds": (int, float),
    "result": dict,
    "provenance.commit": str,
    "provenance.device": str,
    "provenance.versions": dict,
    "provenance.dirty": (bool, type(None)),
}


@dataclass(frozen=True)
class Cell:
    """A computation, and everything that fixes its result.

    ``settings`` are JSON values, all that the computation reads: sizes, epochs, seeds, the recipe. Another setting is
    another cell. ``needs`` are cells whose results this one builds on, by the name of the setting that holds their
    keys.

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
            if not NAME.fullmatch(text := getattr(self, what)):
                raise ValueError(f"{what} must be made of letters, digits, '.', '-' and '_', got {shown(text)}")
        try:
            keys = {name: cell.key for name, cell in self.needs.items()}
            plain = json.loads(_canonical({**self.settings, **keys}))
        except (TypeError, ValueError) as error:
            raise TypeError(f"settings of {self.title} must be JSON values: {error}") from error
        object.__setattr__(self, "settings", plain)

    @property
    def title(self) -> str:
        """Experiment and name, for people."""
        return f"{self.experiment}/{self.name}"

    @cached_property
    def key(self) -> str:
        """Path of the result in a results folder, without ``.json``."""
        digest = hashlib.sha256(_canonical(self.settings).encode()).hexdigest()
        return f"{self.title}-{digest[:DIGEST_DIGITS]}"


def _canonical(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


Work = Callable[[Cell], Mapping[str, Any]]


class Store:
    """Results in ``folder``: computed once, never overwritten, each file read once.

    ``device`` is where experiments compute, ``command`` what gives the results again; both are recorded with each
    result. With ``skip_damaged``, files that cannot be read count as missing, with a line on each in ``damaged``.

    >>> store = Store(getfixture("tmp_path"))
    >>> cell = Cell("sums", "ten", {"terms": 10})
    >>> store.load(cell) is None
    True
    >>> store.compute(cell, lambda cell: {"sum": sum(range(cell.settings["terms"]))})["result"]
    {'sum': 45}
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        device: str = "cpu",
        command: str | None = None,
        *,
        skip_damaged: bool = False,
    ) -> None:
        self.folder, self.device, self.command = Path(folder), device, command
        self.skip_damaged = skip_damaged
        self.damaged: dict[str, str] = {}  # by key of the cell
        self._files: dict[str, dict[str, Any]] = {}

    def path(self, cell: Cell) -> Path:
        """The file of ``cell``, whether it exists or not."""
        return self.folder / f"{cell.key}.json"

    def load(self, cell: Cell) -> dict[str, Any] | None:
        """The whole file of a finished cell (``cell``, ``settings``, ``provenance``, ``wall_seconds``, ``result``)."""
        if cell.key in self._files or cell.key in self.damaged:
            return self._files.get(cell.key)
        path = self.path(cell)
        try:
            content = read_file(path)
            if content is not None and (content["cell"] != cell.title or content["settings"] != cell.settings):
                raise ValueError(f"{path} holds another cell, {content['cell']}; it was moved or changed by hand")
        except (ValueError, OSError) as error:
            if not self.skip_damaged:
                raise
            self.damaged[cell.key] = str(error)
            return None
        if content is not None:
            self._files[cell.key] = content
        return content

    def compute(self, cell: Cell, work: Work) -> dict[str, Any]:
        """The whole file of ``cell``, computed with ``work`` first where it is missing.

        NaN and infinity in the result become null, JSON's only word for them.
        """
        if (content := self.load(cell)) is not None:
            return content
        seeds = next((cell.settings[name] for name in SEEDS if name in cell.settings), None)
        origin = provenance(self.device, seed=seeds, command=self.command)
        began = time.perf_counter()
        result = work(cell)
        content = {
            "cell": cell.title,
            "settings": cell.settings,
            "provenance": origin,
            "wall_seconds": round(time.perf_counter() - began, 3),
            "result": plain_json(result),
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
                content = self.compute(cell, work)
                say(place + 1, cell, f"finished in {content['wall_seconds']:.1f} s")
            contents.append(content)
        return contents


def with_needs(cells: Iterable[Cell]) -> list[Cell]:
    """The cells, each after those it needs, none twice."""
    listed = [own for cell in cells for own in (*with_needs(cell.needs.values()), cell)]
    return list({cell.key: cell for cell in listed}.values())


def read_file(path: Path) -> dict[str, Any] | None:
    """The whole file at ``path``, None where there is none; anything but a whole results file is an error.

    >>> path = getfixture("tmp_path") / "half.json"
    >>> _ = path.write_text('{"cell": "table1/')
    >>> read_file(path)
    Traceback (most recent call last):
    ValueError: ...half.json is not a whole results file (Unterminated string ...); move it away or bring back a copy
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
        wrong = [part for part, kind in PARTS.items() if not isinstance(_part(content, part), kind)]
        if wrong or isinstance(content["wall_seconds"], bool):
            raise ValueError(f"{', '.join(wrong) or 'wall_seconds'} is missing or of another type")
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a whole results file ({error}); move it away or bring back a copy") from error
    whole: dict[str, Any] = content
    return whole


def _part(content: Any, name: str) -> Any:
    """The part at a dotted name; Ellipsis, which is of no type that a part may have, where it is missing."""
    for key in name.split("."):
        content = content.get(key, ...) if isinstance(content, dict) else ...
    return content


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


# Folder of pictures in a folder of results. A setting of this name lists those that are drawn while a cell is computed:
# nothing can draw them again from its results.
PICTURES = "pictures"
QUICK_MARK = " (quick profile)"
QUICK_MEANS = "The quick profile has smaller sets and fewer epochs than the paper: it shows that all works, no more."

Settings = Mapping[str, Any]
Result = Mapping[str, Any]


@dataclass(frozen=True)
class Context:
    """Device, results of needed cells and folder of pictures, which a computation gets beside its settings."""

    device: str
    needed: Mapping[str, Result]  # results of the cell's needs, by setting
    pictures: Path  # the folder for those that its settings name


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper.

    Parameters
    ----------
    name, title : str
        For the command line, and for people.
    cells : callable
        From a profile to the cells of the tables. Some may belong to another experiment, which shares them.
    compute : callable
        From a cell's settings and a :class:`Context` to its result. It reads nothing else: a result depends on its
        settings alone.
    tables : callable
        From a store and a profile to tables; missing results are "not yet".
    claims : callable, optional
        From a store to the table of the paper's claims. The paper profile alone decides them: small sets and a few
        epochs say nothing about them.
    pictures : callable, optional
        From a store, a profile and a folder to the pictures drawn there.
    targets : tuple of Target
        Bounds on the paper profile's results.
    device : str, optional
        The only device it computes on, whatever else there is.

    Examples
    --------
    >>> squares = Experiment(
    ...     "squares",
    ...     "Squares",
    ...     cells=lambda profile: [Cell("squares", "three", {"number": 3})],
    ...     compute=lambda settings, context: {"square": settings["number"] ** 2},
    ...     tables=lambda store, profile: [],
    ... )
    >>> squares.run(Store(getfixture("tmp_path")), "quick")[0]["result"]
    [0/1, 0 s] squares/three: begun
    [1/1, ... s] squares/three: finished in ... s
    {'square': 9}
    """

    name: str
    title: str
    cells: Callable[[str], Sequence[Cell]]
    compute: Callable[[Settings, Context], Result]
    tables: Callable[[Store, str], list[Table]]
    claims: Callable[[Store], Table] | None = None
    pictures: Callable[[Store, str, Path], list[Path]] | None = None
    targets: tuple[Target, ...] = ()
    device: str | None = None

    def run(self, store: Store, profile: str) -> list[dict[str, Any]]:
        """Compute missing cells, and those they need before them, with a line for each; returns all files."""
        return store.compute_all(with_needs(self.cells(profile)), lambda cell: self._work(cell, store))

    def compute_cell(self, cell: Cell, store: Store) -> dict[str, Any]:
        """The whole file of one cell, computed where it is missing, after the cells it needs."""
        return [store.compute(own, lambda wanted: self._work(wanted, store)) for own in with_needs([cell])][-1]

    def _work(self, cell: Cell, store: Store) -> Result:
        files = {name: store.load(other) for name, other in cell.needs.items()}
        needed = {name: file["result"] for name, file in files.items() if file is not None}
        return self.compute(cell.settings, Context(store.device, needed, store.folder / PICTURES))

    def show(self, store: Store, profile: str) -> list[Table]:
        """Tables and claims; titles of the quick profile say so."""
        with self._naming_damage(store):
            tables = self.tables(store, profile)
            if profile == "quick":
                return [replace(table, title=table.title + QUICK_MARK) for table in tables]
            return tables if self.claims is None else [*tables, self.claims(store)]

    def draw(self, store: Store, profile: str) -> list[Path]:
        """Draw the pictures into the store's folder."""
        with self._naming_damage(store):
            return [] if self.pictures is None else self.pictures(store, profile, store.folder / PICTURES)

    def measured_targets(self, store: Store) -> list[tuple[str, ...]]:
        """A row of the table of targets for each."""
        with self._naming_damage(store):
            return [target.row(store) for target in self.targets]

    @contextmanager
    def _naming_damage(self, store: Store) -> Iterator[None]:
        """Turn an error of the code that reads results into a ValueError that names the experiment and its folder."""
        try:
            yield
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, ValueError) and "results file" in str(error):
                raise
            raise ValueError(
                f"a results file of {self.name} under {store.folder} lacks a part that its tables show "
                f"({type(error).__name__}: {error}); move it away or bring back a copy"
            ) from error
