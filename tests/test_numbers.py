"""Measured numbers on the pages equal those of the results files they come from, and older versions are named."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import restt

ROOT = Path(__file__).resolve().parents[1]
PLACES = ROOT / "docs" / "numbers.toml"
NUMBER = r"([-−]?\d[\d,]*(?:\.\d+)?)"
# Written by `restt report` from the results files themselves.
GENERATED = ("docs/results.md", "docs/missed.md")

pytestmark = pytest.mark.skipif(not (ROOT / "results").exists(), reason="results are in the source checkout only")


def entries():
    """Page, results file and the numbers of each entry of docs/numbers.toml."""
    return [
        (page, file, numbers)
        for page, files in tomllib.loads(PLACES.read_text(encoding="utf-8")).items()
        for file, numbers in files.items()
    ]


def read_results(file):
    """The content of a file under results/; names may have * in place of a hash."""
    (path,) = sorted((ROOT / "results").glob(file))
    return json.loads(path.read_text(encoding="utf-8"))


def look_up(content, path):
    """The value at a path of keys with slashes between; docs/numbers.toml describes the notation.

    >>> table = {"rows": [{"r": 20, "at": {"n": 1}, "ms": 2.0}, {"r": 50, "at": {"n": 1}, "ms": 4.0}]}
    >>> look_up(table, "rows/r=50/ms"), look_up(table, "rows/*at.n=1/ms"), look_up(table, "rows/0/ms")
    (4.0, 3.0, 2.0)
    >>> look_up(table, "rows/r=50/ms : rows/r=20/ms")
    2.0
    """
    if " : " in path:
        above, below = path.split(" : ")
        return look_up(content, above) / look_up(content, below)
    values, many = [content], False
    for step in path.split("/"):
        wanted = [term.split("=", 1) for term in step.removeprefix("*").split(";")]
        if step.startswith("*") or "=" in step:
            matches = [
                item
                for value in values
                for item in value
                if all(len(term) == 1 or str(_field(item, term[0])) == term[1] for term in wanted)
            ]
            many |= step.startswith("*")
            values = matches if step.startswith("*") else matches[:1]
        else:
            values = [value[int(step)] if isinstance(value, list) else value[step] for value in values]
    assert values, f"nothing in the file matches {path!r}"
    return float(np.mean(values)) if many else values[0]


def _field(item, name):
    for part in name.split("."):
        item = item.get(part) if isinstance(item, dict) else None
    return item


def test_paths_and_shown_digits():
    table = {"rows": [{"r": 20, "ms": 2.0}, {"r": 50, "ms": 4.0}]}
    assert look_up(table, "rows/*/ms") == 3.0
    assert shows("2.0", 2.04)
    assert not shows("2.0", 2.06)
    assert shows("1,023", 1023)
    assert shows("−0.1", -0.12)


def shows(text, value):
    """Whether a number as it is written is the value, rounded to the digits that are shown."""
    text = text.replace(",", "").replace("−", "-")
    digits = len(text.partition(".")[2])
    return abs(float(text) - value) <= 0.501 * 10.0**-digits


def pattern_of(text):
    """The words of an entry as a pattern: each # is a number, any white space is any other."""
    return r"\s+".join(re.escape(word).replace(r"\#", NUMBER) for word in text.split())


@pytest.mark.parametrize(("page", "file", "numbers"), entries(), ids=lambda value: value if type(value) is str else "")
def test_numbers_are_those_of_the_file(page, file, numbers):
    text = (ROOT / page).read_text(encoding="utf-8")
    content = read_results(file)
    for words, paths in numbers.items():
        match = re.search(pattern_of(words), text)
        assert match, f"{page} has no {words!r}, which docs/numbers.toml takes from results/{file}"
        paths = [paths] if isinstance(paths, str) else paths
        assert len(paths) == len(match.groups()), f"docs/numbers.toml: {words!r} has another number of paths"
        for place, (shown, path) in enumerate(zip(match.groups(), paths, strict=True), start=1):
            value = look_up(content, path)
            percent = re.match(r"\s*%", text[match.end(place) :]) and abs(value) <= 1
            value = 100 * value if percent else value
            assert shows(shown, value), f"{page}: {shown} in {words!r}, but {value:.6g} at {path} of results/{file}"


def test_no_entry_is_empty():
    empty = [f"{page} {file}" for page, file, numbers in entries() if not numbers]
    assert not empty, f"docs/numbers.toml compares nothing of {empty}"


def section(text, place):
    """The part of a page between the headings around a place."""
    begin = max((match.start() for match in re.finditer(r"^#+ ", text[:place], re.MULTILINE)), default=0)
    end = re.search(r"^#+ ", text[place:], re.MULTILINE)
    return text[begin : place + end.start() if end else len(text)]


@pytest.mark.parametrize(("page", "file", "numbers"), entries(), ids=lambda value: value if type(value) is str else "")
def test_pages_name_older_versions(page, file, numbers):
    content = read_results(file)
    text = (ROOT / page).read_text(encoding="utf-8")
    for words, paths in numbers.items():
        stated = re.search(r"\d+\.\d+\.\d+(?:rc\d+)?", str(paths))  # a file may hold several versions
        version = stated[0] if stated else content.get("provenance", {}).get("versions", {}).get("restt")
        match = re.search(pattern_of(words), text)
        assert match is None or version in (None, restt.__version__) or version in section(text, match.start()), (
            f"{page}: {words!r} was measured with {version} (results/{file}): its section has to say so"
        )


def test_baselines_of_tables_have_the_versions_of_the_constraints():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split(" ")[0].split("==") for line in lines if not line.startswith("#"))
    for path in sorted(ROOT.glob("results/tabular/*.json")):
        for name, version in re.findall(
            r'"(lightgbm|catboost|interpret-core|tabpfn)": "([\d.]+)"', path.read_text(encoding="utf-8")
        ):
            assert pinned[name] == version, f"{path.name} was measured with {name} {version}"


@pytest.mark.parametrize("page", ["README.md", *sorted(f"docs/{path.name}" for path in ROOT.glob("docs/*.md"))])
def test_every_results_file_that_a_page_names_is_compared(page):
    if page in GENERATED:
        return
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {name for name in re.findall(r"results/([\w/-]+\.json)", text) if (ROOT / "results" / name).exists()}
    compared = {file for other, file, _ in entries() if other == page}
    assert named - compared <= {"matrix.json"}, f"docs/numbers.toml has nothing of {sorted(named - compared)} on {page}"
    gone = {name for name in re.findall(r"results/([\w/-]+\.json)", text) if not (ROOT / "results" / name).exists()}
    assert not gone, f"{page} names {sorted(gone)}, which are not there"
