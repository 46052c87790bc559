"""Change random places in functions of a package and see whether its tests notice.

    python tools/mutate.py prior --count 200 --seed 0 --workers 16 --limit 400

A mutant flips a comparison, a sign or and/or, drops a `not`, or changes a constant by one or by half. The tests of the
mirrored folder and the doctests run once under a profiler that notes which functions each test calls; a mutant is given
those that call its function, the quick ones first. It is killed if one fails, survives if none does; unreached is
survived. A run that stops at the limit goes on where it was: the JSON file keeps finished mutants, --work the calls.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from restt._common.files import write_json_atomic
from restt._common.provenance import provenance

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {  # package -> its source and its tests
    **{name: (f"src/restt/{name}", f"tests/{name}") for name in ("prior", "explain", "estimators")},
    "app": ("src/restt_app", "tests/restt_app"),
}
COPIED = ("src", "tests", "docs", "examples", "tools")
SWAPS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
VERDICTS = {0: "survived", 1: "killed", 2: "killed", None: "killed"}  # by pytest's exit code; None took too long
PLUGIN = """
import json, os, sys, threading
calls, setups, seconds, root = {}, set(), {}, os.environ["MUTATE_SOURCE"]

def watch(place):
    def seen(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(root):
            place.add(f"{frame.f_code.co_filename[len(root):]}:{frame.f_code.co_firstlineno}")
    hook = None if place is None else seen
    threading.setprofile(hook); sys.setprofile(hook)

def pytest_runtest_setup(item): watch(setups)  # a fixture of the file may be set up for another of its tests
def pytest_runtest_call(item): watch(calls.setdefault(item.nodeid, set()))
def pytest_runtest_teardown(item): watch(None)
def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed:
        seconds[report.nodeid] = report.duration
        found = {test: [sorted(calls[test] | setups), spent] for test, spent in seconds.items()}
        json.dump(found, open(os.environ["MUTATE_CALLS"], "w"))
"""


def places(folder: Path) -> list[tuple[str, int, int, str]]:
    """File, number of the node, first line of its function and description, of everything that can be changed."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        first = {}  # a node's innermost function; its profiled line is that of the first decorator
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                line = min([function.lineno, *(one.lineno for one in function.decorator_list)])
                first.update({id(node): line for statement in function.body for node in ast.walk(statement)})
        for number, node in enumerate(ast.walk(tree)):
            if id(node) in first and (told := change(node, apply=False)):
                found.append((path.relative_to(folder).as_posix(), number, first[id(node)], f"{node.lineno}: {told}"))
    return found


def change(node: ast.AST, *, apply: bool = True) -> str | None:
    """Change a node in place and say how; None where there is nothing to change."""
    operator = node.ops[0] if isinstance(node, ast.Compare) else getattr(node, "op", None)
    if type(operator) in SWAPS and not isinstance(node, ast.AugAssign):
        after = SWAPS[type(operator)]()
        if apply and isinstance(node, ast.Compare):
            node.ops[0] = after
        elif apply:
            node.op = after  # type: ignore[attr-defined]
        return f"{type(operator).__name__} to {type(after).__name__}"
    if isinstance(node, ast.UnaryOp) and isinstance(operator, (ast.USub, ast.Not)):
        if apply:  # twice is not at all
            node.operand = ast.UnaryOp(operator, node.operand)
        return f"{type(operator).__name__} dropped"
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        before, value = node.value, node.value + 1 if type(node.value) is int else node.value * 0.5 or 0.5
        node.value = value if apply else before
        return f"{before!r} to {value!r}"
    return None


def pytest(copy: Path, arguments: list[str], seconds: float, **environment: str) -> int | None:
    """The exit code of pytest in a copy of the tree; None where it took too long."""
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{copy}/src:{copy}", "PYTHONDONTWRITEBYTECODE": "1", **environment}
    try:
        done = subprocess.run(words, cwd=copy, env={**os.environ, **own}, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    return done.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", choices=FOLDERS)
    for name, default in {"count": 200, "seed": 0, "workers": 2, "limit": 400, "budget": 60}.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    parser.add_argument("--work", type=Path, help="folder of copies and calls; default build/mutants-PACKAGE")
    parser.add_argument("--out", type=Path, help="results file; default results/tests/mutants-PACKAGE.json")
    asked = parser.parse_args()
    ends, lock = time.monotonic() + asked.limit, threading.Lock()
    source, tests = FOLDERS[asked.package]
    work = (asked.work or ROOT / "build" / f"mutants-{asked.package}").resolve()
    out = asked.out or ROOT / "results" / "tests" / f"mutants-{asked.package}.json"
    origin = provenance(seed=asked.seed, command=f"python tools/mutate.py {asked.package} --count {asked.count}")
    idle = [work / f"copy{k}" for k in range(asked.workers)]
    (work / "calls").mkdir(parents=True, exist_ok=True)
    for copy in idle:
        shutil.rmtree(copy, ignore_errors=True)
        for name in (name for name in COPIED if (ROOT / name).is_dir()):
            shutil.copytree(ROOT / name, copy / name)
        for path in ROOT.glob("*.*"):
            if path.is_file():
                shutil.copy(path, copy)
        (copy / "mutate_plugin.py").write_text(PLUGIN)
    doctests = [path for path in sorted((ROOT / source).rglob("*.py")) if ">>>" in path.read_text(encoding="utf-8")]
    calls: dict[str, tuple[list[str], float]] = {}

    def watch(path: Path) -> None:
        file = path.relative_to(ROOT)
        kept = work / "calls" / f"{str(file).replace(os.sep, '-')}.json"
        if not kept.exists() and time.monotonic() < ends:
            copy = idle.pop()
            where = {"MUTATE_SOURCE": f"{copy / source}{os.sep}", "MUTATE_CALLS": str(kept)}
            pytest(copy, ["-p", "mutate_plugin", "--maxfail=99", str(file)], asked.limit / 2, **where)
            idle.append(copy)
        calls.update(json.loads(kept.read_text()) if kept.exists() else {})

    results = {item["place"]: item for item in json.loads(out.read_text())["mutants"]} if out.exists() else {}

    def judge(mutant: tuple[str, int, int, str]) -> None:
        file, number, line, how = mutant
        place = f"{file}:{how} (node {number})"
        if place in results or time.monotonic() > ends:
            return
        reach = sorted((seconds, test) for test, (own, seconds) in calls.items() if f"{file}:{line}" in own)
        chosen = [test for k, (_, test) in enumerate(reach) if sum(s for s, _ in reach[: k + 1]) <= asked.budget]
        copy = idle.pop()
        path = copy / source / file
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        change(list(ast.walk(tree))[number])
        path.write_text(ast.unparse(ast.fix_missing_locations(tree)), encoding="utf-8")
        code = pytest(copy, chosen, 3 * asked.budget + 60) if chosen else 5
        verdict = VERDICTS.get(code, "not viable") if chosen else "unreached"
        path.write_text(text, encoding="utf-8")
        idle.append(copy)
        with lock:
            results[place] = {"place": place, "verdict": verdict, "tests": len(chosen)}
            counts = Counter(item["verdict"] for item in results.values())
            share = counts["killed"] / max(1, len(results) - counts["not viable"])
            content = {"provenance": origin, "package": source, "killed_share": share, **counts}
            write_json_atomic(out, {**content, "mutants": sorted(results.values(), key=lambda item: item["place"])})
            print(place, verdict, f"{share:.0%} of {len(results)}", flush=True)

    everything = places(ROOT / source)
    with ThreadPoolExecutor(asked.workers) as pool:
        list(pool.map(watch, (*sorted((ROOT / tests).rglob("test_*.py")), *doctests)))
        list(pool.map(judge, random.Random(asked.seed).sample(everything, min(asked.count, len(everything)))))


if __name__ == "__main__":
    main()
