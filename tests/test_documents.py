"""The README and the documents: links, commands and code work, pages are short and plain."""

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
COMMANDS = get_command(app)
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


def listed(page):
    """The pages that a page has in its hidden table of contents, which makes the sidebar."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line and not line.startswith(":")]


def test_every_page_is_in_the_sidebar_once():
    sections = listed("index")
    assert sections == ["start", "guide", "method", "paper", "benchmarks", "api", "contribute"]
    walked = [*sections, *(page for section in sections for page in listed(section))]
    pages = {page.stem for page in ROOT.glob("docs/*.md")}
    assert sorted(walked) == sorted({*pages - {"index"}, "gallery/index"})


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=name)
def test_references_resolve(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\{doc\}`([^`]+)`", text):
        assert target == "gallery/index" or (ROOT / f"docs/{target}.md").exists(), f"no page {target}"
    public = re.findall(r"^   ([\w.]+)$", (ROOT / "docs/api.md").read_text(encoding="utf-8"), re.MULTILINE)
    for kind, target in re.findall(r"\{py:(\w+)\}`~?([^`]+)`", text):
        documented = target.rpartition(".")[0] if kind in ("meth", "attr") else target
        assert documented.removeprefix("restt.") in public, f"{target} is not on the page of the API: a dead reference"


@pytest.mark.parametrize("document", [page for page in DOCUMENTS if page.name != "CHANGELOG.md"], ids=name)
def test_files_of_the_repository_that_are_named_exist(document):
    for path in re.findall(r"`((?:tests|tools|examples)/[\w./-]+)", document.read_text(encoding="utf-8")):
        assert (ROOT / path).exists() or "NAME" in path, f"{name(document)} names {path}, which is not there"


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
        command = COMMANDS
        for word in words.split():
            if not hasattr(command, "commands"):
                break
            assert word in command.commands, f"{name(document)} names `restt{words}`, which there is not"
            command = command.commands[word]


# Setup that the page does not show, a block with an optional reason why it is not run, and what a block prints.
BLOCK = re.compile(
    r"<!-- setup\n(?P<setup>.*?)-->|(?P<skipped><!-- not run: [^\n]+-->\n)?"
    r"^```python\n(?P<source>.*?)^```$(?:\s*^```text\n(?P<shown>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")], ids=name)
def test_code_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    variables = {}
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        source = block["setup"] or block["source"]
        if block["skipped"]:
            compile(source, name(page), "exec")
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, name(page), "exec"), variables)
        if block["shown"]:
            assert_alike(block["shown"].splitlines(), printed.getvalue().splitlines())


def assert_alike(shown, printed):
    """Equal words, numbers within ten units of their second decimal at most: further digits depend on the machine.

    Lines printed before may be left out, and those after where an ellipsis stands for them.
    """
    shown = shown[:-1] if shown[-1].strip() == "…" else shown
    numbers = r"-?\d+(?:\.\d+)?"
    start = next(
        (
            place
            for place, line in enumerate(printed)
            if re.sub(numbers, "#", line).split() == re.sub(numbers, "#", shown[0]).split()
        ),
        None,
    )
    assert start is not None, f"{shown[0]!r} is not among {printed}"
    for expected, line in zip(shown, printed[start:], strict=False):
        assert re.sub(numbers, "#", expected).split() == re.sub(numbers, "#", line).split()
        for one, other in zip(re.findall(numbers, expected), re.findall(numbers, line), strict=True):
            decimals = min(2, len(one.partition(".")[2]))
            assert float(one) == pytest.approx(float(other), abs=min(1.0, 10.0 ** (1 - decimals)))


@pytest.mark.parametrize("page", [page for page in DOCUMENTS if page.parent == ROOT / "docs"], ids=name)
def test_pages_are_short(page):
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    prose = re.sub(r"^```.*?^```$|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|\n(?=[-*|:] )|\n(?=\d+\. )|\n(?=\|)", prose):
        assert len(paragraph.strip().splitlines()) <= 6, f"{name(page)}: {paragraph.strip()[:60]!r} is over six lines"


def test_the_readme_is_one_screen():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 600


def test_every_claim_of_the_readme_has_a_command():
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Five claims")[2].partition("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("| ")][2:]
    assert len(rows) == 5
    for row in rows:
        commands = re.findall(r"`(tools/\w+\.py|restt \w+)", row.split("|")[-2])
        assert len(commands) == 1, f"README: {row[:60]!r} names {commands or 'no command'}"
        known = (ROOT / commands[0]).exists() or commands[0].removeprefix("restt ") in COMMANDS.commands
        assert known, f"README names {commands[0]!r}, which there is not"


def test_pictures_are_made_by_committed_scripts():
    scripts = [*ROOT.glob("docs/*.py"), *ROOT.glob("tools/*.py")]
    makers = "\n".join(script.read_text(encoding="utf-8") for script in scripts)
    pages = "\n".join(page.read_text(encoding="utf-8") for page in DOCUMENTS)
    for picture in ROOT.glob("docs/images/*"):
        assert picture.name in makers, f"no script of docs/ or tools/ writes {name(picture)}"
        assert picture.name in pages, f"no page shows {name(picture)}"


def test_the_gallery_has_ten_scripts_that_compile():
    scripts = sorted(ROOT.glob("examples/*.py"))
    assert len(scripts) == 10
    order = re.findall(r'^    "(plot_\w+\.py)",$', (ROOT / "docs/conf.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(order) == [script.name for script in scripts]
    for script in scripts:
        compile(script.read_text(encoding="utf-8"), script.name, "exec")


# Words that style.md replaces, as whole phrases.
AVOIDED = ("left-out rows", "trusted unequally", "evened by a power", "wild value")


def test_avoided_words_are_absent():
    sources = [*DOCUMENTS, *sorted((ROOT / "src").rglob("*.py"))]
    for path in sources:
        text = path.read_text(encoding="utf-8").lower()
        for phrase in AVOIDED:
            assert phrase not in text or path.name == "CHANGELOG.md", f"{name(path)} has {phrase!r}"
