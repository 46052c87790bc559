"""Suites: cases that are timed together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from restt_bench.case import Case

IMAGE = Case()  # the main table's sizes: MNIST at 14×14
# The fields of a case that vary, as titles name them.
AXES = {"bond_dim": "r", "sites": "N", "batch": "B"}
SWEEP = replace(IMAGE, batch=128)
IMAGES = 10_000  # classified at once in the inference suite
GPU_RUNS, GPU_PATCH_WIDTH = 10, 8  # side by side, and features of a site that is a patch
QUICK_IMAGE = Case(sites=24, bond_dim=8, batch=32)


@dataclass(frozen=True)
class Suite:
    """Cases timed one after the other; ``axis`` is the field of :class:`Case` that varies, if one does."""

    name: str
    title: str
    cases: tuple[Case, ...]
    axis: str | None = None
    is_sweep: bool = False
    modes: tuple[str, ...] = ("step", "infer")
    only_ours: bool = False


def _along(base: Case, axis: str, values: tuple[int, ...]) -> tuple[Case, ...]:
    return tuple(replace(base, **{axis: value}) for value in values)  # type: ignore[arg-type]


def _main(quick: bool, device: str) -> Suite:
    title, bonds = "One training step of the image model", (4, 8) if quick else (20, 50, 100)
    cases = _along(QUICK_IMAGE if quick else IMAGE, "bond_dim", bonds)
    if not device.startswith("cuda"):
        return Suite("main", title, cases, axis="bond_dim")
    # A GPU has three precisions of products, and room for many runs and for wide sites.
    cases = tuple(replace(case, precision=precision) for precision in ("tf32", "bf16") for case in cases)
    many = tuple(replace(case, runs=GPU_RUNS) for case in cases)
    largest = [case for case in cases if case.bond_dim == bonds[-1]]
    wide = tuple(replace(case, feature_dim=GPU_PATCH_WIDTH) for case in largest)
    return Suite("main", title, (*cases, *many, *wide, replace(largest[0], precision="float32")))


def _inference(quick: bool, device: str) -> Suite:
    base = replace(QUICK_IMAGE, batch=100) if quick else replace(IMAGE, bond_dim=100, batch=IMAGES)
    precisions = ("tf32", "bf16") if device.startswith("cuda") else ("float32",)
    cases = tuple(replace(base, precision=precision) for precision in precisions)
    return Suite("inference", "Site vectors of many images, classified", cases, modes=("infer",), only_ours=True)


def _scaling(name: str, axis: str, base: Case, values: tuple[int, ...], small: tuple[int, ...]) -> Callable[..., Suite]:
    def make(quick: bool, device: str) -> Suite:
        cases = _along(QUICK_IMAGE if quick else base, axis, small if quick else values)
        return Suite(f"scaling-{name}", f"Time against {AXES[axis]}", cases, axis=axis, is_sweep=True)

    return make


# Name -> what makes the suite, quick or not, for a device.
SUITES: dict[str, Callable[[bool, str], Suite]] = {
    "main": _main,
    "inference": _inference,
    "scaling-r": _scaling("r", "bond_dim", SWEEP, (5, 10, 20, 50, 100, 200), (4, 8, 16)),
    "scaling-n": _scaling(
        "n", "sites", replace(SWEEP, batch=64), (100, 200, 500, 1000, 2000, 5000, 10_000), (8, 16, 32)
    ),
    "scaling-b": _scaling("b", "batch", IMAGE, (1, 4, 16, 64, 256, 1024, 4096), (8, 16, 32)),
}
SCALING = ("scaling-r", "scaling-n", "scaling-b")


def suite_of(name: str, device: str, *, quick: bool) -> Suite:
    """The suite with its cases on the device.

    >>> [str(case) for case in suite_of("main", "cpu", quick=True).cases][0]
    'N=24 I=2 r=4 O=10 B=32 residual float32 cpu'
    """
    suite = SUITES[name](quick, device)
    return replace(suite, cases=tuple(replace(case, device=device) for case in suite.cases))
