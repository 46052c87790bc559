"""The kinds of priors that a table is given, and how much each weighs before any row is seen.

A kind is named by words. *alike*: all columns share their scales, else each has its own; *straight*: straight lines of
a shared scale, without interactions; *smooth*, *jumping*, *rough*: what functions are like; *sums*: of functions of
single columns, without interactions; *evened*: of columns taken to a power that makes them even. *joint* is the prior
of all columns at once, see :mod:`restt.prior.joint`.
"""

from __future__ import annotations

from restt.prior.kernels import BEND, JUMPING, SMOOTH

# Usual weights, which count as much as that many rows.
_USUAL, USUAL_ROWS = {"straight": 0.0, "alike": 0.21, "smooth": 0.43, "jumping": 0.21, "joint": 0.15}, 12
# Up to this many rows leave much of the lengths to the density that they are given, and other kinds serve them better.
# Near the choice of tools/choose_priors.py on rows kept aside of some fifty tables; but smooth sums, which it takes as
# well, follow chance where there are nearly as many columns as rows, and those that may jump have their weight.
FEW_ROWS = 400
_USUAL_FEW, _USUAL_ROWS_FEW = (
    {"straight": 0.2, "alike sums": 0.06, "jumping": 0.16, "sums jumping": 0.35, "smooth evened": 0.23},
    45,
)
# More columns than this have no scales of their own: instead of kinds that would, those of shared ones are learned.
MOST_OWN_COLUMNS = 500
_USUAL_WIDE = {"straight": 0.4, "alike": 0.3, "alike jumping": 0.3}
# A distance in all columns is learned from more rows than this.
_FEWEST_JOINT_ROWS = 200
# With more than few rows, kinds of priors in which columns have main effects of their own beside those of the product,
# and kinds whose functions are parabolas in part.
_LEARNED_APART, _BENT = ("smooth",), ("smooth", "alike")


def is_wide(columns: int) -> bool:
    """Whether columns are too many for scales of their own."""
    return columns > MOST_OWN_COLUMNS


def has_many_rows(rows: int, columns: int) -> bool:
    """Whether rows say enough of each column for finer functions and fewer kinds."""
    return rows > FEW_ROWS and not is_wide(columns)


def usual_weights(rows: int, columns: int) -> tuple[dict[str, float], int]:
    """The kinds of priors of a table with their usual weights, and how many rows these count as much as."""
    if is_wide(columns):
        return _USUAL_WIDE, USUAL_ROWS
    if has_many_rows(rows, columns):
        return _USUAL, USUAL_ROWS
    if rows <= _FEWEST_JOINT_ROWS:
        return _USUAL_FEW, _USUAL_ROWS_FEW
    joint = _USUAL["joint"]
    return {**{kind: (1 - joint) * weight for kind, weight in _USUAL_FEW.items()}, "joint": joint}, _USUAL_ROWS_FEW


def is_shared(kind: str) -> bool:
    """Whether columns share their scales."""
    return kind.startswith(("alike", "straight"))


def shared_kind(kind: str) -> str:
    """The kind around whose scales those of each column's own are drawn.

    >>> shared_kind("jumping"), shared_kind("sums jumping evened")
    ('alike', 'alike sums evened')
    """
    return " ".join(["alike", *(word for word in kind.split() if word in ("sums", "evened"))])


def without_own(kind: str) -> str:
    """The kind that is learned instead where columns are too many for scales of their own.

    >>> without_own("rough"), without_own("jumping"), without_own("straight")
    ('alike', 'alike jumping', 'straight')
    """
    if is_shared(kind):
        return kind
    return " ".join(["alike", *(word for word in kind.split() if word in ("sums", "jumping", "evened"))])


def shape(kind: str, many_rows: bool) -> tuple[float, float, bool]:
    """Power, bend and whether columns are evened: see :class:`restt.prior.kernels.Number`."""
    words = kind.split()
    power = JUMPING if "jumping" in words else SMOOTH
    return power, BEND if many_rows and kind in _BENT else 0.0, "evened" in words


def is_apart(kind: str, many_rows: bool) -> bool:
    """Whether main effects that no other column changes are learned beside the product's."""
    return many_rows and kind in _LEARNED_APART
