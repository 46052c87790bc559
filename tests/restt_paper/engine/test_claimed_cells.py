"""What happens between asking for a cell and holding its lock: others finish."""

from __future__ import annotations

import pytest

from restt._common.lock import claimed
from restt_paper.engine import store
from restt_paper.engine.cell import Cell
from restt_paper.engine.store import Store

CELL = Cell("sums", "ten", {"terms": 10})


@pytest.mark.parametrize("method", ["compute", "compute_all"])
def test_a_result_that_another_process_finished_while_we_waited_is_kept(tmp_path, monkeypatch, method):
    theirs: list[dict[str, object]] = []

    def finished_meanwhile(path, *, wait):
        if not theirs:
            monkeypatch.setattr(store, "claimed", claimed)
            theirs.append(Store(tmp_path).compute(CELL, lambda _: {"sum": 45}))
        return claimed(path, wait=wait)

    monkeypatch.setattr(store, "claimed", finished_meanwhile)
    ask = Store(tmp_path)
    if method == "compute":
        found = ask.compute(CELL, lambda _: {"sum": "computed again"})
    else:
        (found,) = ask.compute_all([CELL], lambda _: {"sum": "computed again"})
    assert found == theirs[0] == Store(tmp_path).load(CELL)
