"""Change random places in functions of a package and see whether its tests notice.

    python tools/mutate.py prior --count 200 --seed 0 --workers 2

A mutant flips a comparison, a sign or and/or, drops a `not`, or changes a constant by one or by half. The tests of the
mirrored folder and the doctests run once under a profiler that notes which functions each test calls; a mutant is given
those that call its function, the quick ones first. It is killed if one of them fails or needs more processor time than
is allowed, survives if none does, and is unreached if no test calls its function. All counts and mutants are written to
results/mutants.json, apart for each seed. A run that was stopped goes on where it was. --again runs the tests of today
for the mutants that were not killed and notes it beside the first verdict; tests written after a sample was seen are
judged by another seed.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "results" / "mutants.json"
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
PLUGIN = """
import json, os, sys, threading
calls, setups, seconds, root = {}, set(), {}, os.environ["MUTATE_SOURCE"]

def watch(place):
    def hook(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(root):
            place.add(f"{frame.f_code.co_filename[len(root):]}:{frame.f_code.co_firstlineno}")
    chosen = None if place is None else hook
    threading.setprofile(chosen); sys.setprofile(chosen)

def pytest_runtest_setup(item): watch(setups)  # a fixture of the file may be set up for another of its tests
def pytest_runtest_call(item): watch(calls.setdefault(item.nodeid, set()))
def pytest_runtest_teardown(item): watch(None)
def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed:
        seconds[report.nodeid] = report.duration
        content = {test: [sorted(calls[test] | setups), spent] for test, spent in seconds.items()}
        json.dump(content, open(os.environ["MUTATE_CALLS"], "w"))
"""
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["torch", "pandas", "scipy.stats", "sklearn.ensemble"])
Mutant = tuple[str, int, int, str]  # file, number of the node, first line of its function, description


def mutants(folder: Path) -> list[Mutant]:
    """Everything in functions of the folder that can be changed."""
    candidates = []
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        first = {}  # a node's innermost function; its profiled line is that of the first decorator
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                line = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
                first.update({id(node): line for statement in function.body for node in ast.walk(statement)})
        for number, node in enumerate(ast.walk(tree)):
            if id(node) in first and (how := change(node, apply=False)):
                name = path.relative_to(folder).as_posix()
                candidates.append((name, number, first[id(node)], f"{node.lineno}: {how}"))
    return candidates


def place_of(mutant: Mutant) -> str:
    """How a mutant is named in the results file."""
    file, number, _, how = mutant
    return f"{file}:{how} (node {number})"


def change(node: ast.AST, *, apply: bool = True) -> str | None:
    """Change a node in place and describe the change; None where there is nothing to change."""
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


class Copies:
    """Copies of the tree in which pytest runs, one for each worker."""

    def __init__(self, work: Path, workers: int) -> None:
        self.idle = [work / f"copy{k}" for k in range(workers)]
        for copy in self.idle:
            shutil.rmtree(copy, ignore_errors=True)
            for name in COPIED:
                shutil.copytree(ROOT / name, copy / name)
            for path in ROOT.glob("*.*"):
                if path.is_file():
                    shutil.copy(path, copy)
            (copy / "mutate_plugin.py").write_text(PLUGIN)

    def pytest(self, copy: Path, arguments: list[str], seconds: int, **environment: str) -> int:
        """Exit code of pytest; negative where it used more processor seconds than allowed."""
        process = SERVER.Process(target=_pytest, args=(str(copy), arguments, seconds, environment))
        process.start()
        process.join()
        return process.exitcode or 0


def _pytest(copy: str, arguments: list[str], seconds: int, environment: dict[str, str]) -> None:
    """Run pytest in a fork that has the large packages, but nothing of restt yet."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.chdir(copy)
    sys.path[:0] = [f"{copy}/src", copy]
    sys.dont_write_bytecode = True
    paths = f"{copy}/src", copy, os.environ.get("PYTHONPATH", "")
    os.environ.update(environment, PYTHONPATH=os.pathsep.join(paths), PYTHONDONTWRITEBYTECODE="1")
    import pytest

    words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    os._exit(int(pytest.main(words)))


def calls_of_tests(copies: Copies, package: str, work: Path, seconds: int, pool: ThreadPoolExecutor) -> dict[str, list]:
    """Functions that each test calls, and its seconds; tests beyond the processor seconds of a file are left out."""
    source, tests = FOLDERS[package]
    doctests = [path for path in sorted((ROOT / source).rglob("*.py")) if ">>>" in path.read_text(encoding="utf-8")]
    (work / "calls").mkdir(parents=True, exist_ok=True)
    calls: dict[str, list] = {}

    def watch(files: list[Path]) -> None:
        name = "doctests" if files == doctests else files[0].relative_to(ROOT).as_posix().replace("/", "-")
        stored = work / "calls" / f"{name}.json"
        if not stored.exists() or stored.stat().st_mtime < max(path.stat().st_mtime for path in files):
            copy = copies.idle.pop()
            where = {"MUTATE_SOURCE": f"{copy / source}{os.sep}", "MUTATE_CALLS": str(stored)}
            words = ["-p", "mutate_plugin", "--maxfail=99", *(str(path.relative_to(ROOT)) for path in files)]
            copies.pytest(copy, words, seconds, **where)
            copies.idle.append(copy)
        calls.update(json.loads(stored.read_text()) if stored.exists() else {})

    list(pool.map(watch, [doctests, *([path] for path in sorted((ROOT / tests).rglob("test_*.py")))]))
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", choices=FOLDERS)
    parser.add_argument("--count", type=int, default=200, help="mutants to draw; default 200")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--budget", type=int, default=60, help="seconds of tests for a mutant; default 60")
    parser.add_argument("--per-file", type=int, default=600, help="processor seconds to profile a file of tests")
    parser.add_argument("--again", action="store_true", help="judge those of the sample again that were not killed")
    parser.add_argument("--work", type=Path, help="folder of copies and calls; default build/mutants-PACKAGE")
    asked = parser.parse_args()
    # The server of forks imports this file as well, and a fork has to import the restt of its own copy.
    from restt._common.files import write_json_atomic
    from restt._common.provenance import provenance

    os.environ["OMP_NUM_THREADS"] = "1"
    source, _ = FOLDERS[asked.package]
    work = (asked.work or ROOT / "build" / f"mutants-{asked.package}").resolve()
    command = f"python tools/mutate.py {asked.package} --count {asked.count} --budget {asked.budget}"
    origin = provenance(seed=asked.seed, command=f"{command} --per-file {asked.per_file}")
    copies, lock = Copies(work, asked.workers), threading.Lock()
    content = json.loads(OUT.read_text()) if OUT.exists() else {"packages": {}}
    sample = content["packages"].setdefault(asked.package, {}).setdefault(f"seed {asked.seed}", {"provenance": origin})
    judged = {item["place"]: item for item in sample.get("mutants", [])}

    def verdict_of(file: str, number: int, line: int) -> tuple[str, int]:
        reach = sorted((seconds, test) for test, (own, seconds) in calls.items() if f"{file}:{line}" in own)
        chosen = [test for k, (_, test) in enumerate(reach) if sum(s for s, _ in reach[: k + 1]) <= asked.budget]
        if not chosen:
            return "unreached", 0
        copy = copies.idle.pop()
        path = copy / source / file
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        change(list(ast.walk(tree))[number])
        path.write_text(ast.unparse(ast.fix_missing_locations(tree)), encoding="utf-8")
        code = copies.pytest(copy, chosen, 3 * asked.budget + 60)
        path.write_text(text, encoding="utf-8")
        copies.idle.append(copy)
        return {0: "survived", 1: "killed", 2: "killed"}.get(code, "killed" if code < 0 else "not viable"), len(chosen)

    def judge(mutant: Mutant) -> None:
        file, number, line, _ = mutant
        item = judged.setdefault(place_of(mutant), {"place": place_of(mutant)})
        if "verdict" in item and (not asked.again or "killed" in (item["verdict"], item.get("again"))):
            return
        verdict, tests = verdict_of(file, number, line)
        with lock:
            item |= {"again": verdict} if "verdict" in item else {"verdict": verdict, "tests": tests}
            done = sorted((item for item in judged.values() if "verdict" in item), key=lambda item: item["place"])
            counts = Counter(item["verdict"] for item in done)
            since = sum(item.get("again") == "killed" for item in done)
            viable = len(done) - counts["not viable"]
            content["provenance"] = origin
            sample.update(sampled=len(done), of=len(candidates), killed_since=since)
            sample.update({verdict: counts[verdict] for verdict in ("killed", "survived", "unreached", "not viable")})
            sample.update(killed_share=counts["killed"] / max(1, viable), mutants=done)
            if asked.again:
                sample["again"] = origin
            write_json_atomic(OUT, content)
            print(item["place"], verdict, f"{counts['killed']} + {since} of {viable} killed", flush=True)

    candidates = mutants(ROOT / source)
    with ThreadPoolExecutor(asked.workers) as pool:
        calls = calls_of_tests(copies, asked.package, work, asked.per_file, pool)
        drawn = random.Random(asked.seed).sample(candidates, min(asked.count, len(candidates)))
        known = [mutant for mutant in candidates if place_of(mutant) in judged]  # the code may have changed since
        list(pool.map(judge, known if asked.again else drawn))


if __name__ == "__main__":
    main()
