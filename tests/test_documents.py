"""What the README and the documents point at is there: links, commands of make, commands of restt."""

import contextlib
import io
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from typer.main import get_command

from restt_app.cli import app

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("src/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
# Made when the documentation is built, so absent from a fresh checkout.
BUILT = ("docs/api/", "docs/gallery/", "docs/model-page.html", "docs/report.html")


def name(path):
    return path.relative_to(ROOT).as_posix()


def headings(path):
    """The anchors of a Markdown file, as GitHub and myst make them."""
    lines = re.findall(r"^#+ +(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_lead_somewhere(document):
    for link in LINK.findall(document.read_text(encoding="utf-8")):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        place, _, anchor = unquote(link).partition("#")
        target = (document.parent / place).resolve() if place else document
        if not target.is_relative_to(ROOT) or not name(target).startswith(BUILT):
            assert target.exists(), f"{name(document)} links to {link}, which is not there"
            if anchor and target.suffix == ".md":
                assert anchor in headings(target), f"{name(document)} links to {link}, which has no such heading"


def code(path):
    """What stands between backticks or in blocks: there commands are meant to be typed."""
    text = path.read_text(encoding="utf-8")
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", text)])


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_commands_exist(document):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for target in re.findall(r"^ *make ([a-z-]+)", code(document), re.MULTILINE):
        assert target in targets, f"{name(document)} names `make {target}`, which there is not"
    for words in re.findall(r"^ *restt((?: [a-z-]+)+)", code(document), re.MULTILINE):
        command = get_command(app)
        for word in words.split():
            if not hasattr(command, "commands"):
                break
            assert word in command.commands, f"{name(document)} names `restt{words}`, which there is not"
            command = command.commands[word]


def test_the_readmes_code_prints_what_the_readme_shows():
    """Terms in their order, percentages to one point: the last digits depend on the machine."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    source, shown = re.search(r"```python\n(.*?)```\s*```text\n(.*?)```", text, re.DOTALL).groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "README.md", "exec"), {})
    found = printed.getvalue().splitlines()[1:]
    for expected, line in zip(shown.splitlines(), found, strict=False):
        numbers = r"-?\d+(?:\.\d+)?"
        assert re.sub(numbers, "#", expected).split() == re.sub(numbers, "#", line).split()
        for one, other in zip(re.findall(numbers, expected), re.findall(numbers, line), strict=True):
            assert float(one) == pytest.approx(float(other), abs=1.0)
