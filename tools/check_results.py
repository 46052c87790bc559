"""Count what results files say of their origin; fail where one has no provenance.

    python tools/check_results.py [--history]

--history also asks git which commits of the files are not in the history of this checkout.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def origins(folder: Path) -> dict[str, dict[str, Any] | None]:
    """The provenance of every results file by its path; None where it has none."""
    found = {}
    for path in sorted(folder.rglob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        origin = content.get("provenance") if isinstance(content, dict) else None
        # The matrix of versions has versions in each cell, and a commit in each run.
        cells = content.get("cells", []) if isinstance(content, dict) else []
        runs = [{**run, "versions": cell["versions"]} for cell in cells for run in cell.get("runs", [])]
        if origin is None and runs and all("commit" in run for run in runs):
            origin = runs[-1]
        found[path.relative_to(folder).as_posix()] = origin if isinstance(origin, dict) else None
    return found


def counts(folder: Path) -> dict[str, int]:
    """Number of files, and of those that lack a part of their provenance."""
    names = ("files", "without_provenance", "without_versions", "without_seed", "changes_unknown", "entered_by_hand")
    kinds: Counter[str] = Counter(dict.fromkeys(names, 0))
    for origin in origins(folder).values():
        kinds["files"] += 1
        if origin is None:
            kinds["without_provenance"] += 1
            continue
        kinds["without_versions"] += "versions" not in origin
        kinds["without_seed"] += origin.get("seed") is None
        kinds["changes_unknown"] += origin.get("dirty") is None
        kinds["entered_by_hand"] += origin.get("commit_entered_by_hand") is True
    return dict(kinds)


def lost_commits(folder: Path) -> list[str]:
    """Commits named by files that this checkout's history does not have."""
    named = {str(origin["commit"]) for origin in origins(folder).values() if origin and origin.get("commit")}
    ask = ["git", "-C", str(ROOT), "cat-file", "-e"]
    return sorted(commit for commit in named if subprocess.run([*ask, commit], capture_output=True).returncode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--history", action="store_true", help="also look for commits that are not in the history")
    asked = parser.parse_args()
    folder = ROOT / "results"
    for kind, count in counts(folder).items():
        print(f"{kind.replace('_', ' ')}: {count}")
    if asked.history:
        print("commits not in the history:", ", ".join(lost_commits(folder)) or "none")
    lacking = [name for name, origin in origins(folder).items() if origin is None]
    if lacking:
        sys.exit(f"no provenance: {', '.join(lacking)}")


if __name__ == "__main__":
    main()
