from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest

from restt_paper.engine.lock import claimed

# A holder forks a child that outlives it.
DYING = """
import os, sys, time
from pathlib import Path
from restt_paper.engine.lock import claimed

with claimed(Path(sys.argv[1]), wait=False) as ours:
    assert ours
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(600)
    os._exit(0)
"""

# A holder whose child walks out of the block, as an error in it would make it. With a second name a thread of the child
# holds a lock of its own meanwhile, under the number that the parent's had.
LIVING = """
import os, sys, threading
from pathlib import Path
from restt_paper.engine.lock import claimed

path, *others = map(Path, sys.argv[1:])
held, left = threading.Event(), threading.Event()

def hold(other):
    with claimed(other, wait=False) as ours:
        assert ours
        held.set()
        left.wait()

with claimed(path, wait=False) as ours:
    assert ours
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        with claimed(path, wait=False) as again:
            print(status, path.exists(), again)
    elif others:
        threading.Thread(target=hold, args=others).start()
        held.wait()
left.set()
"""

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@needs_fork
def test_a_forked_child_that_outlives_the_holder_holds_nothing(tmp_path):
    path = tmp_path / "cell.lock"
    holder = subprocess.Popen([sys.executable, "-c", DYING, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    try:
        assert holder.wait(timeout=60) == 0
        os.kill(child, 0)  # it is alive
        with claimed(path, wait=False) as ours:
            assert ours
    finally:
        os.kill(child, signal.SIGKILL)
        holder.stdout.close()


@needs_fork
@pytest.mark.parametrize("names", [["cell.lock"], ["cell.lock", "other.lock"]], ids=["idle", "with a lock of its own"])
def test_a_forked_child_that_leaves_the_block_takes_no_lock_from_its_parent(tmp_path, names):
    words = [sys.executable, "-c", LIVING, *(str(tmp_path / name) for name in names)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["0", "True", "False"], done.stderr
    assert not (tmp_path / "cell.lock").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not remove an open file")
def test_who_tidies_up_the_locks_does_not_stop_who_waits(tmp_path, monkeypatch):
    path = tmp_path / "locks" / "cell.lock"
    monkeypatch.setattr("restt_paper.engine.lock._pause", lambda: shutil.rmtree(path.parent))
    with claimed(path, wait=False), claimed(path, wait=True) as after_waiting:
        assert after_waiting
