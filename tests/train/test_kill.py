import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_again_and_again_it_ends_with_the_same_bits(tmp_path):
    root = Path(__file__).parents[2]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"}
    finished = subprocess.run(
        [sys.executable, "-m", "tests.train.killed", str(tmp_path), str(KILLS)],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert f"{KILLS} kills" in finished.stdout
    assert "trainings finished with the same bits" in finished.stdout
