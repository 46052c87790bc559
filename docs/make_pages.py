"""Write the HTML pages that the documentation links to, and draw the README's picture with the current code.

    python docs/make_pages.py

``model-page.html`` comes from ``restt demo``, ``report.html`` and ``results.md`` from ``results/``.
"""

from __future__ import annotations

import runpy
import shutil
import tempfile
from pathlib import Path

from restt_app import demo
from restt_paper.report import write_report

HERE = Path(__file__).parent

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        demo.run(folder)
        shutil.copyfile(Path(folder) / "page.html", HERE / "model-page.html")
    runpy.run_path(str(HERE / "make_readme_picture.py"))
    write_report(HERE.parent / "results", HERE / "results.md", HERE / "report.html")
