"""Count our files and lines: in each package, and behind four walks that a reader of the code may take.

    python tools/walk.py [--names]

A walk is one call in a process of its own. Its *loaded* files are our modules in ``sys.modules`` afterwards, its *run*
files those of which a function was called. ``--names`` also prints the loaded files of every walk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
TABLE = "import numpy as np, restt; x = np.random.default_rng(0).normal(size=(60, 4))\n"
CSV = "a,b,kind,y\n" + "".join(f"{k % 7},{k * k % 11},{'uvw'[k % 3]},{k % 7 * (k % 3)}\n" for k in range(60))
# Name -> the code of the walk; its working folder holds data.csv.
WALKS = {
    "ResTTRegressor().fit": TABLE + "restt.ResTTRegressor(random_state=0).fit(x, x[:, 0] * x[:, 1])",
    "ResTTClassifier().fit": TABLE + "restt.ResTTClassifier(random_state=0).fit(x, x[:, 0] * x[:, 1] > 0)",
    "restt fit": "command('fit', 'data.csv', '--target', 'y', '-o', 'model', '--quiet')",
    "restt reproduce table4 --profile quick": "command('reproduce', 'table4', '--profile', 'quick')",
}
PROGRAM = """
import inspect, json, os, sys, threading

ran = set()

def seen(frame, event, argument):
    if event == "call":
        ran.add(frame.f_code)

def command(*words):
    import restt.__main__
    sys.argv = ["restt", *words]
    try:
        restt.__main__.main()
    except SystemExit as end:
        if end.code:
            raise

sys.stdout = open(os.devnull, "w")
threading.setprofile(seen)
sys.setprofile(seen)
{code}
sys.setprofile(None)
threading.setprofile(None)
loaded = [module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)]
run = [code.co_filename for code in ran if code.co_flags & inspect.CO_NEWLOCALS]  # no bodies of modules and classes
json.dump({{"loaded": loaded, "run": run}}, sys.__stdout__)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", action="store_true", help="also print the loaded files of every walk")
    given = parser.parse_args()
    print_packages()
    print(f"\n{'walk':<40}{'loaded':>8}{'run':>8}")
    for name, code in WALKS.items():
        print(f"{name:<40}", end="", flush=True)
        loaded, run = walk(code)
        print(f"{len(loaded):>8}{len(run):>8}", flush=True)
        if given.names:
            print("".join(f"    {path}\n" for path in sorted(loaded)))


def print_packages() -> None:
    print(f"{'package':<40}{'files':>8}{'lines':>8}")
    total = [0, 0]
    for package in sorted(path for path in SOURCE.iterdir() if (path / "__init__.py").exists()):
        for label, paths in {package.name: package.rglob("*.py"), **_parts(package)}.items():
            lines = [len(path.read_text(encoding="utf-8").splitlines()) for path in paths]
            print(f"{label:<40}{len(lines):>8}{sum(lines):>8}")
            if label == package.name:
                total = [total[0] + len(lines), total[1] + sum(lines)]
    print(f"{'all':<40}{total[0]:>8}{total[1]:>8}")


def _parts(package: Path) -> dict[str, list[Path]]:
    """Python files of the folders of a package."""
    folders = sorted(path for path in package.iterdir() if (path / "__init__.py").exists())
    return {f"  {folder.name}/": sorted(folder.rglob("*.py")) for folder in folders}


def walk(code: str) -> tuple[set[str], set[str]]:
    """Our files that a piece of code loads, and those of which it calls a function, relative to ``src/``."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "data.csv").write_text(CSV)
        path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(code=code)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    if done.returncode:
        sys.exit("walk.py: the walk above failed; table4 needs MNIST and Fashion-MNIST, see `restt data list`")
    files = json.loads(done.stdout)
    return ours(files["loaded"]), ours(files["run"])


def ours(files: list[str]) -> set[str]:
    """Paths below ``src/``, relative to it."""
    paths = {Path(file).resolve() for file in files}
    return {path.relative_to(SOURCE).as_posix() for path in paths if path.is_relative_to(SOURCE)}


if __name__ == "__main__":
    main()
