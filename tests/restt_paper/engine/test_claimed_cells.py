"""What happens between asking for a cell and holding its lock: others finish, and lock files go."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from restt._common import lock
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


@pytest.mark.parametrize("wait", [False, True])
def test_a_lock_file_that_its_holder_removed_before_we_locked_it_is_not_ours(tmp_path, monkeypatch, wait):
    path = tmp_path / "cell.lock"
    holder, try_lock = ExitStack(), lock._try_lock
    holder.enter_context(claimed(path, wait=False))

    def after_the_holder_ends(descriptor):
        holder.close()
        return try_lock(descriptor)

    monkeypatch.setattr(lock, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(lock, "_try_lock", after_the_holder_ends)
    with claimed(path, wait=wait) as second, claimed(path, wait=False) as third:
        assert second + third == 1
