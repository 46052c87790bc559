"""The palette: every colour that text has can be read on every ground it stands on, in both themes and on paper."""

from __future__ import annotations

import re

import pytest

from restt_app.pages.shell import asset

# axe cannot judge text inside drawings, so the colours themselves are held to its bound.
READABLE = 4.5
TEXTS = ("ink", "muted", "accent", "good", "bad")
GROUNDS = ("bg", "card", "sunken")


def palettes():
    light, dark, *_, paper = (
        dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{3,6});", block))
        for block in re.findall(r":root \{(.*?)\}", asset("style.css"), re.DOTALL)
    )
    return {"light": light, "dark": {**light, **dark}, "print": {**light, **paper}}


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_text_can_be_read(theme):
    colours = palettes()[theme]
    weak = {
        (text, ground): round(contrast(colours[text], colours[ground]), 2)
        for text in TEXTS
        for ground in GROUNDS
        if contrast(colours[text], colours[ground]) < READABLE
    }
    assert weak == {}
    assert contrast(colours["accent"], colours["on-accent"]) >= READABLE or theme == "print"


def test_lines_of_a_chart_stand_out():
    for colours in palettes().values():
        assert min(contrast(colours[f"s{place}"], colours["card"]) for place in range(6)) >= 3
