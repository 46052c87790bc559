"""The pages in a real browser: a clean console, tables that sort, an explorer that answers, nothing too wide."""

from __future__ import annotations

from pathlib import Path

import pytest

from restt_paper.report import write_report
from tests.restt_paper.few_results import fill

PHONE, DESK = 390, 1200
COMMITTED = Path(__file__).parents[3] / "results"


@pytest.fixture(scope="module")
def address(page, tmp_path_factory):
    file = tmp_path_factory.mktemp("model") / "page.html"
    file.write_text(page, encoding="utf-8")
    return file.as_uri()


def show(browser, address, width=DESK, theme="light"):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [
        {"name": "prefers-color-scheme", "value": theme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(address)


CHECKED = frozenset({"color-contrast", "label", "svg-img-alt", "heading-order"})


def violations(browser, axe, checked=CHECKED):
    """What axe finds, as a rule and the place; ``checked`` are rules that must have found something to check."""
    browser.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
    browser.execute_script(axe)
    found = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    assert checked <= {one["id"] for one in found["passes"]}
    return [(one["id"], node["target"]) for one in found["violations"] for node in one["nodes"]]


def too_wide(browser):
    return browser.execute_script("return document.documentElement.scrollWidth - innerWidth")


def sort(browser, column):
    """The texts of a column of the first table after a click on its heading, and the way it says it is sorted."""
    return browser.execute_script(
        """
        const table = document.querySelector("table.sortable"), column = arguments[0];
        table.tHead.rows[0].cells[column].querySelector("button").click();
        return [[...table.tBodies[0].rows].map(row => Number(row.cells[column].dataset.value)),
                table.tHead.rows[0].cells[column].getAttribute("aria-sort")];
        """,
        column,
    )


def test_the_model_page_works(browser, address):
    show(browser, address)
    browser.get_log("browser")
    show(browser, address)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.querySelectorAll('svg').length") > 3
    values, way = sort(browser, 1)
    assert (values, way) == ([0.4, 0.7, 0.9], "ascending")
    assert sort(browser, 1) == [[0.9, 0.7, 0.4], "descending"]


def test_the_explorer_answers(browser, address):
    show(browser, address)
    by = browser.find_element
    before = by("id", "ex-facts").text
    by("id", "ex-next").click()
    assert by("id", "ex-facts").text != before
    browser.execute_script(
        "const v = document.getElementById('ex-value'); v.value = v.max; v.dispatchEvent(new Event('input'))"
    )
    assert "instead of" in by("id", "ex-answer").text
    # By keyboard alone: an arrow moves the value.
    before = by("id", "ex-answer").text
    by("id", "ex-value").send_keys("\ue012")
    assert by("id", "ex-answer").text != before
    browser.execute_script(
        "document.querySelector('#ex-curve circle.dot').dispatchEvent("
        "new PointerEvent('pointermove', {bubbles: true, clientX: 50, clientY: 50}))"
    )
    assert browser.execute_script("return document.getElementById('tip').textContent")


def test_the_threshold_moves_the_confusion_matrix(browser, threshold_page, axe, tmp_path):
    from selenium.webdriver.support.ui import WebDriverWait

    file = tmp_path / "page.html"
    file.write_text(threshold_page, encoding="utf-8")
    browser.get_log("browser")
    show(browser, file.as_uri(), PHONE)
    cells = "return [...document.querySelectorAll('#confusion td b')].map(cell => Number(cell.textContent))"
    WebDriverWait(browser, 20).until(lambda _: browser.execute_script(cells))  # drawn by the page's script
    assert browser.execute_script(cells) == [62, 0, 0, 60]
    browser.execute_script(
        "const v = document.getElementById('cut'); v.value = 10; v.dispatchEvent(new Event('input'))"
    )
    assert browser.execute_script(cells) == [62, 0, 30, 30]
    browser.execute_script(
        "const v = document.getElementById('cut'); v.value = 90; v.dispatchEvent(new Event('input'))"
    )
    assert browser.execute_script(cells) == [22, 40, 0, 60]
    assert browser.get_log("browser") == []
    assert too_wide(browser) <= 0
    assert violations(browser, axe) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_model_page_can_be_read_by_everybody(browser, address, axe, theme):
    show(browser, address, PHONE, theme)
    assert too_wide(browser) <= 0
    assert violations(browser, axe) == []


def test_print_opens_what_is_closed(browser, address):
    show(browser, address)
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script("return document.querySelectorAll('details:not([open])').length") == 0
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert browser.execute_script("return document.querySelectorAll('details[open]').length") == 0


def test_the_paper_page_can_be_read_by_everybody(browser, axe, tmp_path):
    write_report(fill(tmp_path), tmp_path / "page.md", tmp_path / "page.html")
    for theme in ("light", "dark"):
        show(browser, (tmp_path / "page.html").as_uri(), PHONE, theme)
        assert too_wide(browser) <= 0
        assert violations(browser, axe, {"color-contrast", "heading-order"}) == []


def test_the_paper_page_works(browser, tmp_path):
    write_report(COMMITTED, tmp_path / "page.md", tmp_path / "page.html")
    address = (tmp_path / "page.html").as_uri()
    browser.get_log("browser")
    show(browser, address)
    assert browser.get_log("browser") == []
    found = browser.execute_script(
        """
        const table = document.querySelector("#table2 table.sortable");
        table.tHead.rows[0].cells[2].querySelector("button").click();
        return [...table.tBodies[0].rows].map(row => Number(row.cells[2].dataset.value));
        """
    )
    assert len(found) == 13
    assert found == sorted(found)
    show(browser, address, PHONE)
    assert too_wide(browser) <= 0
