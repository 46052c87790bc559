"""The tests under every Python and with the oldest and newest dependencies that can be had here.

Each cell is an environment of its own: an interpreter from 3.11 on that is found on this machine, and either the lowest
versions that pyproject.toml admits or the newest. By default torch is the one of constraints.txt throughout, since
every other build brings several gigabytes; an interpreter for which it cannot be had, or does not import, is named and
left out. ``--torch any`` takes whatever the registry has, and the oldest torch with the oldest dependencies.

What each cell showed is written to results/matrix.json: its versions, and of every run in it which tests, at which
commit, how many passed. A run replaces an earlier one of the same tests.

Run by `make matrix`. ``--python 3.11`` and ``--dependencies oldest`` take one cell; ``--keep FOLDER`` keeps the
environments there and finds them again; ``--brief`` leaves out the few files that take most of the time; ``--each``
makes a run of its own of every path given, or of all there are, so that what is done stays when a later one is
stopped; other arguments are handed to pytest.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "results" / "matrix.json"
MINORS = range(11, 16)
EXTRAS = ("fast", "app", "plot", "export", "tune", "baselines", "dev")
TORCH = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
# Most of the time, and few lines that depend on versions: kernels under Triton's interpreter, long fits, baselines.
SLOW = (
    "tests/restt_baselines", "tests/chain/cuda", "tests/chain/test_operators.py",
    "tests/estimators/test_checks.py", "tests/estimators/test_posterior.py", "tests/estimators/test_refinement.py",
    "tests/estimators/test_search.py", "tests/fuzz", "tests/prior", "tests/restt_app/pages/test_browser.py",
    "tests/restt_app/workflow/test_fitting.py", "tests/restt_bench", "tests/restt_paper",
    "tests/sequences/test_volterra.py",
)  # fmt: skip
# What torch says of itself, of Python 3.13.0 and of tensors it looks at; our own warnings stay errors.
TORCHS_WARNINGS = (
    "default:`torch.jit:FutureWarning",
    "default:Guards may run slower:RuntimeWarning",
    "default:The .grad attribute of a Tensor that is not a leaf:UserWarning",
    "default:Attempted to insert a get_attr Node:UserWarning",
    "default:Node :UserWarning",
    "default:Additional :UserWarning",
)
# Old packages warn of what newer ones beneath them have changed.
OLD_WARNINGS = ("default::DeprecationWarning", "default::PendingDeprecationWarning", "default::FutureWarning")
# Those whose versions decide what is tested; all others come with them.
NAMED = (
    "torch", "triton", "numpy", "scipy", "scikit-learn", "safetensors", "pandas", "pyarrow", "polars", "matplotlib",
    "onnx", "onnxruntime", "onnxscript", "typer", "rich", "jinja2", "optuna", "interpret-core", "shap", "shapiq",
    "ziglang", "pytest", "hypothesis",
)  # fmt: skip


def interpreters() -> dict[str, str]:
    """Version -> program, of those on the path and of pyenv's."""
    found = {}
    for minor in MINORS:
        name = f"python3.{minor}"
        places = [shutil.which(name), *map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))]
        for place in filter(None, places):
            if subprocess.run([place, "-c", "import venv"], capture_output=True).returncode == 0:
                found.setdefault(f"3.{minor}", place)
    return found


def oldest() -> list[str]:
    """The lowest version of every requirement with a bound; triton is the one that belongs to torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])]
    pins = {}
    for requirement in wanted:
        match = re.match(r"([A-Za-z0-9_.-]+)>=([0-9.]+)", requirement)
        if match and match[1] != "triton":
            pins[match[1]] = f"{match[1]}=={match[2]}.*" if match[2].count(".") < 2 else f"{match[1]}=={match[2]}"
    return sorted(pins.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="only this version, such as 3.12")
    parser.add_argument("--dependencies", choices=("newest", "oldest"), help="only these")
    parser.add_argument("--torch", choices=("light", "any"), default="light", help="that of constraints.txt, or any")
    parser.add_argument("--keep", type=Path, help="a folder in which environments are kept and found again")
    parser.add_argument("--brief", action="store_true", help="without the slow files")
    parser.add_argument("--each", action="store_true", help="one run for every path")
    parser.add_argument("-n", dest="workers", default="auto", help="how many processes run tests: pytest-xdist's")
    given, arguments = parser.parse_known_args()
    arguments += [f"--ignore={path}" for path in SLOW if given.brief]
    runs = _each(arguments) if given.each else [arguments]
    failed = []
    for version, program in interpreters().items():
        for which in ("newest", "oldest"):
            if given.python not in (None, version) or given.dependencies not in (None, which):
                continue
            name = f"Python {version}, {which} dependencies"
            pins = oldest() if which == "oldest" else []
            if given.torch == "light":
                pins = [TORCH, *(pin for pin in pins if not pin.startswith("torch=="))]
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary) if given.keep is None else given.keep / f"{version}-{which}-{given.torch}"
                problem = _install(program, folder, pins)
                if problem:
                    print(f"matrix: left out: {name}: {problem}", flush=True)
                    continue
                warnings = [*TORCHS_WARNINGS, *(OLD_WARNINGS if which == "oldest" else ())]
                versions = _versions(folder)
                cell = {"python": version, "dependencies": which, "warnings": warnings, "versions": versions}
                for tests in runs:
                    print(f"matrix: {name}: {' '.join(tests)}", flush=True)
                    run = _tested(folder, tests, warnings, given.workers)
                    _note(cell, run)
                    if run["exit"]:
                        failed.append(f"{name}: {' '.join(tests)}")
    for name in failed:
        print(f"matrix: failed: {name}", file=sys.stderr)
    return bool(failed)


def _install(program: str, folder: Path, pins: list[str]) -> str:
    """Why the environment cannot be made; nothing where it was."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([program, "-m", "venv", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # The build for the CPU first: what follows then finds torch there.
    if TORCH in pins and subprocess.run([*pip, "--no-deps", "--only-binary=:all:", TORCH]).returncode:
        return f"no {TORCH} for it that is light; --torch any takes the registry's, of several gigabytes"
    (folder / "pins.txt").write_text("\n".join(pins))
    package = f"{ROOT}[{','.join(EXTRAS)}]"
    if subprocess.run([*pip, "--constraint", str(folder / "pins.txt"), "--editable", package]).returncode:
        return "its dependencies cannot be installed together"
    imported = subprocess.run([python, "-c", "import torch"], capture_output=True)
    return "" if imported.returncode == 0 else "its torch does not import, being a build for another machine"


def _each(arguments: list[str]) -> list[list[str]]:
    """Pytest's arguments once for every path among them; where there is none, for all in tests/ and the doctests."""
    paths = [one for one in arguments if (ROOT / one).exists()]
    rest = [one for one in arguments if one not in paths]
    everything = sorted({path.relative_to(ROOT).parts[:2] for path in (ROOT / "tests").rglob("test_*.py")})
    return [[*rest, path] for path in paths or [*map("/".join, everything), "src"]]


def _tested(folder: Path, tests: list[str], allowed: list[str], workers: str) -> dict[str, Any]:
    """What the tests showed in an environment."""
    python = str(folder / "bin" / "python")
    lenient = [part for warning in allowed for part in ("-W", warning)]
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "report.xml"
        command = [python, "-m", "pytest", "-n", workers, *lenient, f"--junitxml={report}", *tests]
        code = subprocess.run(command, cwd=ROOT).returncode
        for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
            kinds = {child.tag for child in case}
            counts["failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"] += 1
    return {
        "pytest": tests,
        "exit": code,
        **counts,
        "seconds": round(time.monotonic() - began),
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--", "src", "tests", "pyproject.toml")),
    }


def _versions(folder: Path) -> dict[str, str]:
    """Versions of the packages that matter, in an environment."""
    command = [str(folder / "bin" / "python"), "-m", "pip", "list", "--format=json"]
    frozen = subprocess.run(command, capture_output=True, text=True, check=True)
    installed = {one["name"].lower(): one["version"] for one in json.loads(frozen.stdout)}
    return {name: installed[name] for name in NAMED if name in installed}


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _note(cell: dict[str, Any], run: dict[str, Any]) -> None:
    """Puts a run into its cell of the record, where the newest of the same tests stands."""
    cells = json.loads(RECORD.read_text())["cells"] if RECORD.exists() else []
    others = [one for one in cells if any(one[key] != cell[key] for key in cell)]
    runs = [one for same in cells if same not in others for one in same["runs"] if one["pytest"] != run["pytest"]]
    cells = [*others, {**cell, "runs": sorted([*runs, run], key=lambda one: one["pytest"])}]
    cells.sort(key=lambda one: (one["python"], one["dependencies"], one["versions"]["torch"]))
    RECORD.write_text(json.dumps({"cells": cells}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
