"""Speed against baselines and the machine's limit, from the files of ``restt bench``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from restt_app.pages.numbers import short
from restt_app.pages.shell import Cell, DataTable
from restt_paper.page.charts import Series, log_bars, log_lines
from restt_paper.page.files import read_all

KINDS = {"ours": "ours", "peer": "other", "baseline": "other", "limit": "limit"}
AXES = {"bond_dim": "bond dimension r", "sites": "sites N", "batch": "batch B", "runs": "runs S"}
STEP = "ms a training step"
# Ways that are there to check others by, not to be fast.
NOT_TIMED = ("reference", "tree")


@dataclass(frozen=True)
class Suite:
    """One file of timings, as a chart and a table."""

    title: str
    chart: Markup
    caption: str
    table: DataTable | None
    provenance: Mapping[str, Any]


@dataclass(frozen=True)
class Timings:
    """What one file has to show."""

    steps: tuple[Suite, ...]
    scaling: tuple[Suite, ...]
    targets: tuple[tuple[Cell, ...], ...]
    missed: tuple[str, ...]
    slower: tuple[str, ...]  # where something else is faster, in words
    provenance: Mapping[str, Any]


@dataclass(frozen=True)
class Speed:
    """All that was timed."""

    files: tuple[Timings, ...]
    damaged: tuple[str, ...]

    @property
    def steps(self) -> list[Suite]:
        return [suite for file in self.files for suite in file.steps]

    @property
    def scaling(self) -> list[Suite]:
        return [suite for file in self.files for suite in file.scaling]

    @property
    def targets(self) -> DataTable | None:
        rows = tuple(row for file in self.files for row in file.targets)
        columns = ("target", "suite", "bound", "measured", "verdict")
        return DataTable("Targets of speed", columns, rows, frozenset({2, 3})) if rows else None


def speed(results: Path) -> Speed:
    """Read ``results/bench``."""
    files, damaged = read_all(results, ["bench/*.json"], _timings)
    return Speed(tuple(files), tuple(damaged))


def _timings(content: Mapping[str, Any]) -> Timings:
    main, targets = content["suite"] == "main", content.get("targets") or []
    return Timings(
        tuple(_steps(content)) if main else (),
        (_scaling(content),) if content.get("axis") and not main else (),
        tuple(_target(content, target) for target in targets),
        tuple(
            f"{_suite(content)}: {target['what']} is {_amount(target)}, wanted {_bound(target)}"
            for target in targets
            if not target["met"]
        ),
        tuple(_slower(content)) if main else (),
        content.get("provenance") or {},
    )


def _timed(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [row for row in content.get("rows") or [] if row.get("step") and _name(row) not in NOT_TIMED]


def _name(row: Mapping[str, Any]) -> str:
    return str(row.get("implementation") or row.get("contender"))


def _plain_steps(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """One run, the narrowest features, the products that most of them have."""
    rows = [row for row in _timed(content) if row["case"].get("runs") is None]
    width = min((row["case"]["feature_dim"] for row in rows), default=0)
    rows = [row for row in rows if row["case"]["feature_dim"] == width]
    products = [(row.get("flags") or {}).get("products") for row in rows]
    usual = max(set(products), key=products.count, default=None)
    return [row for row, product in zip(rows, products, strict=True) if product == usual]


def _steps(content: Mapping[str, Any]) -> list[Suite]:
    rows = _plain_steps(content)
    if not rows:
        return []
    bonds = sorted({row["case"]["bond_dim"] for row in rows})
    times = {bond: {row["label"]: row for row in rows if row["case"]["bond_dim"] == bond} for bond in bonds}
    last = times[bonds[-1]]
    ranked = sorted(last.values(), key=lambda row: row["step"]["median"])
    fastest = min((row["step"]["median"] for row in ranked if row["role"] == "ours"), default=None)
    case, device = ranked[0]["case"], _device(content)
    products = (ranked[0].get("flags") or {}).get("products")
    told = ", ".join(f"{row['label']} {short(row['step']['median'], 3)} ms" for row in ranked)
    labels = sorted({label for at in times.values() for label in at}, key=lambda label: _median(last.get(label)))
    table = DataTable(
        f"Milliseconds of one training step, {device}",
        ("implementation", "role", *(f"r = {bond}" for bond in bonds), f"times ours at r = {bonds[-1]}"),
        tuple(
            (
                Cell(label, kind="best" if _role(times, label) == "ours" else ""),
                Cell({"ours": "ours", "limit": "limit"}.get(_role(times, label), "baseline")),
                *(_step_cell(times[bond].get(label)) for bond in bonds),
                _ratio(last.get(label), fastest),
            )
            for label in labels
        ),
        frozenset(range(2, len(bonds) + 3)),
    )
    return [
        Suite(
            device,
            log_bars(
                [(row["label"], row["step"]["median"], KINDS[row["role"]]) for row in ranked],
                f"One training step at r = {bonds[-1]} on {device}, fastest first: {told}",
                f"{STEP}, by its logarithm",
            ),
            f"r = {bonds[-1]}, {case['sites']} sites, batch {case['batch']}"
            + (f", {products} products" if products else "")
            + ". Dashed: the bare matrix products of the step, one after the other; fused kernels can be below it.",
            table,
            content.get("provenance") or {},
        )
    ]


def _slower(content: Mapping[str, Any]) -> list[str]:
    """Bond dimensions at which a baseline is faster than the fastest of ours."""
    rows = _plain_steps(content)
    found = []
    for bond in sorted({row["case"]["bond_dim"] for row in rows}):
        here = [row for row in rows if row["case"]["bond_dim"] == bond]
        ours = min((row["step"]["median"] for row in here if row["role"] == "ours"), default=None)
        found += [
            f"{_device(content)}, r = {bond}: {row['label']} {short(row['step']['median'])} ms, ours {short(ours)} ms"
            for row in here
            if ours is not None and KINDS[row["role"]] == "other" and row["step"]["median"] < ours
        ]
    return found


def _scaling(content: Mapping[str, Any]) -> Suite:
    axis = content["axis"]
    lines: dict[str, dict[float, float]] = {}
    kinds: dict[str, str] = {}
    for row in _timed(content):
        at = row["case"].get(axis)
        # Of our own ways only the one that is chosen by itself: the others are how it is made.
        if at is not None and (row["role"] != "ours" or _name(row) == "auto"):
            lines.setdefault(row["label"], {}).setdefault(float(at), row["step"]["median"])
            kinds[row["label"]] = KINDS[row["role"]]
    series = [Series(label, tuple(sorted(points.items())), kinds[label]) for label, points in lines.items()]
    sizes = sorted({at for points in lines.values() for at in points})
    table = DataTable(
        f"{content['title']}: milliseconds of one training step",
        ("implementation", *(short(size) for size in sizes)),
        tuple(
            (
                Cell(label, kind="best" if kinds[label] == "ours" else ""),
                *(Cell(short(points[size], 3), points[size]) if size in points else Cell("–") for size in sizes),
            )
            for label, points in lines.items()
        ),
        frozenset(range(1, len(sizes) + 1)),
    )
    return Suite(
        str(content["title"]),
        log_lines(series, f"{content['title']}: {', '.join(lines)}", AXES.get(axis, axis), STEP),
        f"{_device(content)}. Thick: ours; thin: baselines; dashed: the limit.",
        table,
        content.get("provenance") or {},
    )


def _target(content: Mapping[str, Any], target: Mapping[str, Any]) -> tuple[Cell, ...]:
    met = bool(target["met"])
    remark = "" if met else str(target.get("verdict", "")).removeprefix("missed").lstrip(": ")
    return (
        Cell(str(target["what"])),
        Cell(_suite(content)),
        Cell(_bound(target), target.get("bound")),
        Cell(_amount(target), target.get("measured")),
        Cell("✓ met" if met else "✗ missed", None, remark, "mark better" if met else "mark worse"),
    )


def _bound(target: Mapping[str, Any]) -> str:
    sign = "≤" if target.get("kind") == "at most" else "≥"
    return f"{sign} {short(target.get('bound'))} {target.get('unit', '')}".strip()


def _amount(target: Mapping[str, Any]) -> str:
    return f"{short(target.get('measured'))} {target.get('unit', '')}".strip()


def _suite(content: Mapping[str, Any]) -> str:
    return f"{content['suite']}, {_device(content)}"


def _device(content: Mapping[str, Any]) -> str:
    return str((content.get("provenance") or {}).get("device") or content.get("device") or "?")


def _median(row: Mapping[str, Any] | None) -> float:
    return float("inf") if row is None else float(row["step"]["median"])


def _role(times: Mapping[int, Mapping[str, Mapping[str, Any]]], label: str) -> str:
    return next(str(at[label]["role"]) for at in times.values() if label in at)


def _step_cell(row: Mapping[str, Any] | None) -> Cell:
    if row is None:
        return Cell("–")
    step = row["step"]
    return Cell(short(step["median"], 3), step["median"], f"{short(step['lower'], 3)} … {short(step['upper'], 3)}")


def _ratio(row: Mapping[str, Any] | None, fastest: float | None) -> Cell:
    if row is None or not fastest:
        return Cell("–")
    times = row["step"]["median"] / fastest
    return Cell(f"{short(times, 3)}×", times)
