"""Files of results beside the paper's own: timings and leagues, which no experiment knows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

Made = TypeVar("Made")


def read_all(
    results: Path, patterns: Sequence[str], read: Callable[[dict[str, Any]], Made]
) -> tuple[list[Made], list[str]]:
    """What ``read`` makes of each file, and a line on each of which it can make nothing.

    A file without a ``suite`` is named after itself. Its parts have the shape that the program of its day gave them, so
    a mangled or a foreign one can make any line of the reading code fail.

    >>> folder = getfixture("tmp_path")
    >>> _ = (folder / "a.json").write_text('{"title": "one"}'), (folder / "b.json").write_text("{")
    >>> read_all(folder, ["*.json"], lambda content: content["title"])
    (['one'], ['Left out: b.json cannot be read (JSONDecodeError: ...)'])
    """
    made, damaged = [], []
    for path in [path for pattern in patterns for path in sorted(results.glob(pattern))]:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            made.append(read({"suite": path.stem, **content}))
        except Exception as error:
            name = path.relative_to(results).as_posix()
            damaged.append(f"Left out: {name} cannot be read ({type(error).__name__}: {error})")
    return made, damaged
