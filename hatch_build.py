"""Compile the C files into the wheel: ``RESTT_BUNDLE=1 python -m build``, as cibuildwheel does for a release.

Without that variable the wheel is pure Python and C is compiled at first use: one build for the machine at hand
takes seconds, those for every level of its processors most of a minute.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "src/restt"
MODULE = "chain/cpu/bundled.py"


class CustomBuildHook(BuildHookInterface):
    """Adds a library per C file, number type and level of processor, and the platform to the wheel's name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, where that is wanted, and say where in the wheel the results go."""
        if version != "standard" or os.environ.get("RESTT_BUNDLE", "0") in ("", "0"):
            return
        package = Path(self.root) / PACKAGE
        bundled = _loaded(package / MODULE)
        if not bundled.levels():
            raise RuntimeError(
                f"RESTT_BUNDLE is set, but no level of this processor is known: {sysconfig.get_platform()}"
            )
        self.folder = tempfile.TemporaryDirectory(prefix="restt-wheel-")
        folder = Path(self.folder.name)
        wanted = [(*one, level) for one in bundled.sources(package) for level in bundled.levels()]

        def compiled(source: Path, type_name: str, level: Any) -> Path:
            output = folder / bundled.file_name(source, type_name, level)
            compiler = tuple(shlex.split(os.environ.get("CC") or "cc"))
            subprocess.run(bundled.command(compiler, source, type_name, (level.tuning, "-s"), output), check=True)
            return output

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            made = list(pool.map(lambda one: compiled(*one), wanted))
        place = f"restt/{Path(MODULE).parent.as_posix()}/{bundled.FOLDER.name}"
        build_data["force_include"] |= {str(path): f"{place}/{path.name}" for path in made}
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled."""
        if hasattr(self, "folder"):
            self.folder.cleanup()


def _loaded(path: Path) -> Any:
    """A module of the package by its file: the package itself needs torch."""
    spec = importlib.util.spec_from_file_location("restt_bundled", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
