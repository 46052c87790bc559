"""The first example of docs/explanations.md prints what the page shows."""

import doctest
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanations.md"
NUMBER = re.compile(r"-?\d+\.\d+")


class Nearly(doctest.OutputChecker):
    """Numbers may differ by two units (of per cent), which is more than machines do and less than models."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        shown = want.split("...")[0]
        lines = "\n".join(got.splitlines()[: len(shown.strip().splitlines())])
        same = NUMBER.sub("#", shown).split() == NUMBER.sub("#", lines).split()
        numbers = [list(map(float, NUMBER.findall(text))) for text in (shown, lines)]
        return same and numbers[1] == pytest.approx(numbers[0], abs=2.0)


def test_the_example_prints_what_the_page_shows():
    block = re.search(r"```python\n(>>>.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    test = doctest.DocTestParser().get_doctest(block.group(1), {}, "explanations.md", str(PAGE), 0)
    runner = doctest.DocTestRunner(Nearly(), verbose=False)
    runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
    assert len(test.examples) > 10
