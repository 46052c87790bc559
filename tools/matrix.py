"""The tests under every Python and with the oldest and newest dependencies that can be had here.

Each cell is an environment of its own: an interpreter from 3.11 on that is found on this machine, and either the lowest
versions that pyproject.toml admits or the newest. torch is the one of constraints.txt throughout, since every other
build brings several gigabytes; an interpreter for which it cannot be had, or does not import, is named and left out.

Run by `make matrix`. ``--python 3.11`` takes one interpreter; other arguments are handed to pytest.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MINORS = range(11, 16)
EXTRAS = ("plot", "table", "report", "export", "dev")
TORCH = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))


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
    """The lowest version of every requirement with a bound.

    torch is left to its pin.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])]
    pins = {}
    for requirement in wanted:
        match = re.match(r"([A-Za-z0-9_.-]+)>=([0-9.]+)", requirement)
        if match and match[1] not in ("torch", "triton"):
            pins[match[1]] = f"{match[1]}=={match[2]}.*" if match[2].count(".") < 2 else f"{match[1]}=={match[2]}"
    return sorted(pins.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="only this version, such as 3.12")
    given, tests = parser.parse_known_args()
    failed = []
    for version, program in interpreters().items():
        if given.python not in (None, version):
            continue
        for which, pins in (("newest", []), ("oldest", oldest())):
            name = f"Python {version}, {which} dependencies"
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                problem = _install(program, folder, pins)
                if problem:
                    print(f"matrix: left out: {name}: {problem}", flush=True)
                    continue
                print(f"matrix: {name}", flush=True)
                command = [str(folder / "bin" / "python"), "-m", "pytest", "--numprocesses", "auto", *tests]
                if subprocess.run(command, cwd=ROOT).returncode:
                    failed.append(name)
    for name in failed:
        print(f"matrix: failed: {name}", file=sys.stderr)
    return bool(failed)


def _install(program: str, folder: Path, pins: list[str]) -> str:
    """Why the environment cannot be made; nothing where it was."""
    subprocess.run([program, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # The build for the CPU first: what follows then finds torch there.
    if subprocess.run([*pip, "--no-deps", "--only-binary=:all:", TORCH]).returncode:
        return f"no {TORCH} for it"
    (folder / "pins.txt").write_text("\n".join([TORCH, *pins]))
    package = f"{ROOT}[{','.join(EXTRAS)}]"
    if subprocess.run([*pip, "--constraint", str(folder / "pins.txt"), "--editable", package]).returncode:
        return "its dependencies cannot be installed together"
    imported = subprocess.run([python, "-c", "import torch"], capture_output=True)
    return "" if imported.returncode == 0 else f"{TORCH} does not import, being a build for another machine"


if __name__ == "__main__":
    sys.exit(main())
