"""Could this be released today? Builds wheel and sdist, looks into them, and uses the wheel as a stranger would.

1. Both are built from a clean copy of what is committed, and twine accepts their metadata.
2. The wheel holds the five packages with their templates, the C libraries of this platform and nothing else; the sdist
   holds the tests.
3. In a new environment without a compiler the wheel installs with its extras and runs its own C libraries, and every
   Python block of the README runs outside the checkout, as do `restt --version`, `info`, `fit`, `predict`, `explain`.

Run by `make release-check`; exits 1 with what is wrong.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("restt", "restt_app", "restt_baselines", "restt_paper", "restt_bench")
NEEDED = ("restt/py.typed", "restt_app/pages/templates/base.html.j2", "restt_paper/paper_numbers.json")
EXTRAS = "app,plot,export"
# What compiles: none may be found by name.
COMPILERS = ("cc", "gcc", "clang", "c++", "g++", "zig")
TABLE = "a,b,kind,y\n" + "".join(f"{k % 7},{(k * k) % 11},{'uvw'[k % 3]},{(k % 7) * (k % 3)}\n" for k in range(120))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="folder for wheel and sdist; by default they are thrown away")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        dist = given.keep or folder / "dist"
        wheel, sdist = _build(folder / "source", dist)
        problems = [*_look_into(wheel, sdist), *_use(wheel, folder)]
    for problem in problems:
        print(f"release-check: {problem}", file=sys.stderr)
    if not problems:
        print(f"release-check: {wheel.name} and {sdist.name} could go out")
    return bool(problems)


def _run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    print("+", " ".join(command[:6]), flush=True)
    return subprocess.run(command, check=True, text=True, **options)  # type: ignore[call-overload, no-any-return]


def _build(source: Path, dist: Path) -> tuple[Path, Path]:
    """Build from the last commit, not from the working tree: what is not committed is not released."""
    _run(["git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), str(source)])
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(source)]
    _run(build, stdout=subprocess.DEVNULL, env={**os.environ, "RESTT_BUNDLE": "1"})
    files = sorted(dist.iterdir(), key=lambda path: path.stat().st_mtime)
    _run([sys.executable, "-m", "twine", "check", "--strict", *map(str, files)])
    return next(path for path in files if path.suffix == ".whl"), next(path for path in files if path.suffix == ".gz")


def _look_into(wheel: Path, sdist: Path) -> list[str]:
    inside = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in inside}
    strange = sorted(top for top in tops if top not in PACKAGES and not top.endswith(".dist-info"))
    problems = [f"the wheel holds {top}, which is no package of ours" for top in strange]
    problems += [f"the wheel has no {name}" for name in NEEDED if name not in inside]
    problems += [f"the wheel holds {name}" for name in inside if "/tests/" in name or name.endswith(".pyc")]
    with tarfile.open(sdist) as archive:
        packed = archive.getnames()
    for wanted in ("tests/conftest.py", "README.md", "LICENSE", "constraints.txt"):
        if not any(name.split("/", 1)[-1] == wanted for name in packed):
            problems.append(f"the sdist has no {wanted}")
    return problems


def _use(wheel: Path, folder: Path) -> list[str]:
    """Install into a new environment and run the README there, with no compiler on the path."""
    environment = folder / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*install, "--constraint", str(constraints), f"{wheel}[{EXTRAS}]"])
    outside = folder / "outside"
    outside.mkdir()
    tools = folder / "tools"
    tools.mkdir()
    for tool in ("env", "uname", "ldconfig"):
        found = next(
            (Path(place) / tool for place in os.environ["PATH"].split(":") if (Path(place) / tool).exists()), None
        )
        if found:
            (tools / tool).symlink_to(found)
    settings = {
        "PATH": f"{environment / 'bin'}:{tools}",
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "MPLBACKEND": "agg",
        "OMP_NUM_THREADS": "2",
    }
    assert not any((tools / compiler).exists() for compiler in COMPILERS)
    (outside / "data.csv").write_text(TABLE)
    problems = []
    blocks = _python_blocks(ROOT / "README.md")
    if not blocks:
        problems.append("the README has no Python block")
    script = outside / "readme.py"
    script.write_text("\n\n".join(blocks))
    commands = [
        [str(python), str(ROOT / "tools" / "check_wheel.py")],
        [str(python), str(script)],
        ["restt", "--version"],
        ["restt", "info"],
        ["restt", "fit", "data.csv", "--target", "y", "-o", "model", "--quiet"],
        ["restt", "predict", "model", "data.csv", "-o", "predictions.csv"],
        ["restt", "explain", "model", "data.csv", "-o", "page.html"],
    ]
    for command in commands:
        program = command[0] if os.path.isabs(command[0]) else str(environment / "bin" / command[0])
        done = subprocess.run(
            [program, *command[1:]], cwd=outside, env=settings, text=True, capture_output=True, timeout=600
        )
        print("+", " ".join(Path(part).name for part in command[:4]), "→", done.returncode, flush=True)
        if done.returncode:
            problems.append(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    for made in ("predictions.csv", "page.html"):
        if not (outside / made).exists():
            problems.append(f"{made} was not written")
    return problems


def _python_blocks(readme: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", readme.read_text(encoding="utf-8"), flags=re.DOTALL)


if __name__ == "__main__":
    sys.exit(main())
