from __future__ import annotations

import signal
import subprocess
import sys

from restt._common.lock import claimed

HOLDING = """
import sys, time
from pathlib import Path
from restt._common.lock import claimed

with claimed(Path(sys.argv[1]), wait=False) as ours:
    print(ours, flush=True)
    time.sleep(600)
"""


def test_a_lock_is_held_by_one_process_and_freed_when_that_dies(tmp_path):
    path = tmp_path / "locks" / "cell.lock"
    process = subprocess.Popen([sys.executable, "-c", HOLDING, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    with claimed(path, wait=False) as ours:
        assert not ours
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with claimed(path, wait=True) as ours:
        assert ours
