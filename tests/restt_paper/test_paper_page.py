"""The page of everything measured, from folders of results with much, little or nothing in them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import restt_paper
from restt_paper.report import write_report
from tests.restt_app.pages.conftest import NASTY
from tests.restt_paper.few_results import fill

COMMITTED = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    file = tmp_path_factory.mktemp("report") / "report.html"
    write_report(COMMITTED, file.with_suffix(".md"), file)
    return file


@pytest.fixture
def few(tmp_path):
    return fill(tmp_path)


def text_of(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", re.sub(r"(?s)<(script|style).*?</\1>", " ", page)))


def test_the_committed_results_make_a_page(page):
    text = page.read_text()
    assert len(text) < 2_000_000
    places = [text.index(f'<section id="{name}"') for name in ("asked", "method", *restt_paper.EXPERIMENTS, "missed")]
    assert places == sorted(places)
    for section in ("speed", "league", "made"):
        assert f'<section id="{section}"' in text
    assert text.count("data:image/png;base64,") == len(list((COMMITTED / "paper" / "pictures").glob("fig-*.png")))
    said = text_of(text)
    assert "✗ does not hold" in said
    assert "restt reproduce table4 --profile paper" in said
    assert "The variants surround a recipe whose choice had used other labels" in said


def test_speed_and_league_are_tables(few):
    write_report(few, few / "page.md", few / "page.html")
    said = text_of((few / "page.html").read_text())
    assert "★ 0.700" in said
    assert "Steps, a CPU: ms a training step" in said


def test_names_of_tables_stay_text(few):
    write_report(few, few / "page.md", few / "page.html")
    page = (few / "page.html").read_text()
    assert NASTY not in page
    assert page.count("<script") == 1


def test_the_page_depends_on_the_results_alone(few):
    write_report(few, few / "one.md", few / "one.html")
    shutil.copytree(few, few / "elsewhere", ignore=shutil.ignore_patterns("*.md", "*.html", "elsewhere"))
    write_report(few / "elsewhere", few / "two.md", few / "two.html")
    assert (few / "one.html").read_bytes() == (few / "two.html").read_bytes()
    assert str(few) not in (few / "one.html").read_text()


def test_nothing_measured_gives_a_page_that_says_so(tmp_path):
    write_report(tmp_path, tmp_path / "page.md", tmp_path / "page.html")
    said = text_of((tmp_path / "page.html").read_text())
    assert "Not measured yet: table1" in said
    assert "League of tables" not in said


def test_a_damaged_file_is_left_out_and_named(few):
    (few / "bench" / "broken.json").write_text("{")
    (few / "tabular" / "strange.json").write_text('{"results": ["r2"]}')
    write_report(few, few / "page.md", few / "page.html")
    said = text_of((few / "page.html").read_text())
    assert "Left out: broken.json cannot be read" in said
    assert "Left out: strange.json cannot be read" in said
    assert "★ 0.700" in said
