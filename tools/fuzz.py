"""Give every loader damaged files and record how many it refused.

    python tools/fuzz.py [--count 10000] [--workers 2]

Runs tests/fuzz, which fails where a loader ends in an error that is not ours, runs away or executes anything. Files
that are not refused are read: no rule forbids what they hold. Written to results/fuzz.json.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from common import ROOT, parser, write_results


def main() -> None:
    reader = parser(__doc__, workers=2)
    reader.add_argument("--count", type=int, default=10_000, help="damaged files for each loader")
    given = reader.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = [sys.executable, "-m", "pytest", "-n", str(given.workers), f"--junitxml={report}", "tests/fuzz"]
        ended = subprocess.run(words, cwd=ROOT, env={**os.environ, "RESTT_FUZZ": str(given.count)}).returncode
        if not report.exists():
            sys.exit(ended)
        loaders = {}
        for case in ElementTree.parse(report).iter("testcase"):
            name = case.attrib["name"].partition("[")[2].removesuffix("]")
            counts = {item.attrib["name"]: int(item.attrib["value"]) for item in case.iter("property")}
            loaders[name] = {**counts, "passed": case.find("failure") is None, "seconds": float(case.attrib["time"])}
    content = {
        "title": "Damaged files given to loaders",
        "loaders": loaders,
        "files": sum(counts.get("files", 0) for counts in loaders.values()),
        "failed": sum(not counts["passed"] for counts in loaders.values()),
    }
    write_results("fuzz.json", content, f"fuzz.py --count {given.count} --workers {given.workers}")
    sys.exit(ended)


if __name__ == "__main__":
    main()
