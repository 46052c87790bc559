"""Where data files are looked for and where downloads go."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from restt._common.errors import shown
from restt._common.files import user_cache

HOME_VARIABLE = "RESTT_DATA_HOME"


def system_folders() -> tuple[Path, ...]:
    """Folders an administrator or an environment may have filled."""
    shared = os.environ.get("XDG_DATA_DIRS") or os.pathsep.join(["/usr/local/share", "/usr/share"])
    bases = [Path(sys.prefix) / "share", *(Path(part) for part in shared.split(os.pathsep) if part)]
    return tuple(dict.fromkeys(base / "restt" for base in bases))


def search_folders(data_home: Any = None) -> tuple[Path, ...]:
    """All data homes in the order they are looked at; the first is where downloads go."""
    first = [_folder("data_home", data_home)] if data_home is not None else []
    named = os.environ.get(HOME_VARIABLE)
    second = [_folder(HOME_VARIABLE, named)] if named else []
    return tuple(dict.fromkeys([*first, *second, user_cache(), *system_folders()]))


def _folder(name: str, value: Any) -> Path:
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path, got {shown(value)} of type {type(value).__name__}")
    return Path(value).expanduser().absolute()
