"""The commands ``restt reproduce`` and ``restt report``."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import restt_paper
from restt._common.errors import check_choice, check_folder, check_new_file
from restt._common.files import write_bytes_atomic
from restt_paper.experiments import QUICK_MEANS

if TYPE_CHECKING:
    from restt_paper.report import Report

MISSED = "missed.md"


def reproduce(what: str, profile: str, output: Path | None, device: str) -> None:
    """Run one experiment or ``"all"``: compute, show the tables, draw the pictures."""
    names = list(restt_paper.EXPERIMENTS)
    check_choice("name", what, [*names, "all"])
    device = restt_paper.read_device(device)
    left_out = []
    for name in names if what == "all" else [what]:
        try:
            restt_paper.reproduce(name, profile, output, device)
        except ImportError as error:  # of an optional package: the others can do without
            left_out.append(f"{name} was left out: {error}")
            continue
        for table in restt_paper.tables_of(name, profile, output):
            table.print()
        try:
            for picture in restt_paper.pictures_of(name, profile, output):
                print(picture)
        except ImportError as error:  # of matplotlib: there are still results and tables
            print(f"no pictures: {error}")
        print(f"{name}: results in {restt_paper.open_store(name, profile, output).folder}", flush=True)
    if profile == "quick":
        print(QUICK_MEANS)
    if left_out:
        raise ImportError("; ".join(left_out))


def write_report(
    results: str | PathLike[str] = "results",
    output: str | PathLike[str] = "docs/results.md",
    page: str | PathLike[str] | None = None,
) -> Report:
    """Write all results as Markdown, ``missed.md`` beside it and, where ``page`` names a file, one HTML page.

    The same results give the same pages. Results are no part of the installed package: outside a checkout they are
    those of the working directory.
    """
    from restt_paper.report import collect

    written = check_new_file("output", output)
    html = None if page is None else check_new_file("page", page)
    check_folder("results", results)
    if not Path(results).exists():  # an empty page must not replace one of results by a slip
        raise FileNotFoundError(
            f"results must be a folder of results, got {str(results)!r}, which is not there; restt reproduce fills one"
        )
    report = collect(map(restt_paper.experiment, restt_paper.EXPERIMENTS), results)
    write_bytes_atomic(written, report.to_markdown(written.parent).encode())
    write_bytes_atomic(written.with_name(MISSED), report.missed_markdown().encode())
    if html is not None:
        from restt_paper.page import paper_page

        write_bytes_atomic(html, paper_page(report, Path(results)).encode())
    return report
