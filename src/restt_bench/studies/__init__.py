"""Measurements other than timed steps: each is a function of device, settings and console that returns a result.

A study prints its findings as they come and returns what a results file should hold, its ``title`` among
it. Loaded when asked for: some need data sets, some a GPU.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from rich.console import Console

    from restt_bench.case import Settings

# Name -> the file here, or another module, and its function.
STUDIES = {
    "check": "kernel_checks:check_kernels",
    "networks": "networks:networks",
    "loops": "loops:loops",
    "tables": "restt_bench.league:league",
    "explain": "explaining:explaining",
    "explain-trees": "explaining_trees:explaining_trees",
}


class Study(Protocol):
    """A measurement: from device, settings and console to the content of a results file."""

    def __call__(self, device: str, settings: Settings, console: Console) -> dict[str, Any]:
        """Run the study."""


def study_named(name: str) -> Study:
    """The function behind a name of ``STUDIES``."""
    file, _, function = STUDIES[name].partition(":")
    module = file if "." in file else f"restt_bench.studies.{file}"
    return cast(Study, getattr(importlib.import_module(module), function))
