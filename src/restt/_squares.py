"""The side of a square whose places come as one flat row."""

from __future__ import annotations

import math


def square_side(name: str, places: int) -> int:
    """The side of a square of so many places; ``name`` says in an error what they are.

    >>> square_side("pixels", 784)
    28
    >>> square_side("pixels", 10)
    Traceback (most recent call last):
    ValueError: pixels must form a square (such as 784 for 28×28), got 10
    """
    side = math.isqrt(max(places, 0))
    if places < 1 or side * side != places:
        raise ValueError(f"{name} must form a square (such as 784 for 28×28), got {places}")
    return side
