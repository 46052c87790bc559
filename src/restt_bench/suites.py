"""Which cases are timed together and who takes part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from restt_bench.case import Case
from restt_bench.complexity import CLAIMS

IMAGE = Case()  # the main table's sizes: MNIST at 14×14
TABLE = Case(sites=13, bond_dim=20, outputs=1, batch=354)  # a small table: Boston's training split
SWEEP = replace(IMAGE, batch=128)
QUICK_IMAGE = Case(sites=24, bond_dim=8, batch=32)
QUICK_TABLE = Case(sites=13, bond_dim=8, outputs=1, batch=40)


@dataclass(frozen=True)
class Suite:
    """Cases timed one after the other; ``axis`` is the field of :class:`Case` that varies, if one does."""

    name: str
    title: str
    cases: tuple[Case, ...]
    axis: str | None = None
    full_tensor: bool = False  # races the full tensor instead of the peers
    is_sweep: bool = False


def _along(base: Case, axis: str, values: tuple[int, ...]) -> tuple[Case, ...]:
    return tuple(replace(base, **{axis: value}) for value in values)  # type: ignore[arg-type]


def _main(quick: bool) -> Suite:
    cases = _along(QUICK_IMAGE, "bond_dim", (4, 8)) if quick else _along(IMAGE, "bond_dim", (20, 50, 100))
    return Suite("main", "One training step of the image model", cases, axis="bond_dim")


def _small(quick: bool) -> Suite:
    base, runs = (QUICK_TABLE, 4) if quick else (TABLE, 64)
    return Suite("small", "A small table: one run, and many side by side", (base, replace(base, runs=runs)))


def _scaling(name: str, axis: str, base: Case, values: tuple[int, ...], small: tuple[int, ...]) -> Callable[..., Suite]:
    def make(quick: bool) -> Suite:
        start = base
        if quick:
            start = QUICK_TABLE if base == TABLE else QUICK_IMAGE
        cases = _along(start, axis, small if quick else values)
        return Suite(f"scaling-{name}", f"Time against {CLAIMS[axis].axis}", cases, axis=axis, is_sweep=True)

    return make


def _full_tensor(quick: bool) -> Suite:
    base = replace(QUICK_IMAGE if quick else SWEEP, batch=64)
    cases = _along(base, "sites", (4, 6, 8) if quick else (4, 6, 8, 10, 12, 14, 16, 18))
    title = "The full tensor of Eq. 4 against the train"
    return Suite("full-tensor", title, cases, axis="sites", full_tensor=True, is_sweep=True)


SUITES: dict[str, Callable[[bool], Suite]] = {
    "main": _main,
    "small": _small,
    "scaling-r": _scaling("r", "bond_dim", SWEEP, (5, 10, 20, 50, 100, 200), (4, 8, 16)),
    "scaling-n": _scaling(
        "n", "sites", replace(SWEEP, batch=64), (100, 200, 500, 1000, 2000, 5000, 10_000), (8, 16, 32)
    ),
    "scaling-b": _scaling("b", "batch", IMAGE, (1, 4, 16, 64, 256, 1024, 4096), (8, 16, 32)),
    "scaling-s": _scaling("s", "runs", TABLE, (1, 2, 4, 8, 16, 32, 64), (1, 2, 4)),
    "full-tensor": _full_tensor,
}
IMPORT_SUITE = "import"
GROUPS = {
    "scaling": ("scaling-r", "scaling-n", "scaling-b", "scaling-s"),
    "all": (*SUITES, IMPORT_SUITE),
}
NAMES = (*SUITES, IMPORT_SUITE, *GROUPS)


def expand(names: list[str] | tuple[str, ...]) -> list[str]:
    """Suite names with the groups ``scaling`` and ``all`` spelled out, each suite once.

    >>> expand(["scaling", "main", "scaling-r"])
    ['scaling-r', 'scaling-n', 'scaling-b', 'scaling-s', 'main']
    """
    from restt._common.errors import check_choice

    expanded: list[str] = []
    for name in names:
        expanded += GROUPS.get(check_choice("suite", name, NAMES), (name,))
    return list(dict.fromkeys(expanded))
