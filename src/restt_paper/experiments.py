"""An experiment: its cells, their computation, its tables, claims, pictures and targets, in one object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from restt_paper.store import Cell, Store
from restt_paper.table import Table
from restt_paper.verdict import Target

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
        """Compute missing cells with a line of progress for each; returns the files of all cells."""
        return store.compute_all(self.cells(profile), lambda cell: self._work(cell, store))

    def compute_cell(self, cell: Cell, store: Store) -> dict[str, Any]:
        """The whole file of one cell, computed where it is missing, after the cells it needs."""
        return store.compute(cell, lambda wanted: self._work(wanted, store))

    def _work(self, cell: Cell, store: Store) -> Result:
        needed = {name: self.compute_cell(other, store)["result"] for name, other in cell.needs.items()}
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
