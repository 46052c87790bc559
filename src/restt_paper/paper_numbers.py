"""The paper's numbers, as it prints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("paper_numbers.json")


def paper_numbers() -> dict[str, Any]:
    """Every number the paper reports, by table; accuracies in percent, ``[mean, std]`` where the paper gives a std.

    >>> paper_numbers()["table2_accuracy"]["MNIST"]["ResTT(r=100)"]
    99.04
    """
    numbers: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return numbers
