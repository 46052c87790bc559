"""One training at a time uses a checkpoint folder."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from restt.train import TrainConfig, train
from restt.train.checkpoint import LAST, LOCK, Checkpoints
from tests.train.problems import assert_same_bits, regression, small_module

CONFIG = TrainConfig(epochs=4, batch_size=16, lr=1e-2, seed=4)
OTHER_PROCESS = """
import sys, time
from restt.train import TrainConfig, train
from tests.train.problems import regression, small_module
stream = train(small_module(), *regression(), config=TrainConfig(epochs=4, batch_size=16, lr=1e-2, seed=4),
               checkpoint_dir=sys.argv[1])
next(stream)
print("training", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def other_process(tmp_path):
    root = Path(__file__).parents[2]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OTHER_PROCESS), str(tmp_path)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "training\n"
    yield process
    process.kill()
    process.communicate()


def trained(folder, module=None):
    module = small_module() if module is None else module
    return module, list(train(module, *regression(), config=CONFIG, checkpoint_dir=folder))


def test_another_process_is_told_and_a_dead_one_does_not_block(tmp_path, other_process):
    with pytest.raises(RuntimeError, match=rf"{tmp_path} is in use: another process trains into it"):
        trained(tmp_path)
    other_process.send_signal(signal.SIGKILL)
    other_process.wait()
    module, records = trained(tmp_path)
    assert len(records) == 4
    assert_same_bits(module, trained(None)[0])


def test_the_folder_is_free_again_however_a_training_ends(tmp_path, monkeypatch):
    def free():
        try:
            with FileLock(tmp_path / LOCK, blocking=False):
                return True
        except Timeout:
            return False

    stream = train(small_module(), *regression(), config=CONFIG, checkpoint_dir=tmp_path)
    next(stream)
    assert not free()
    stream.close()
    assert free()
    with pytest.raises(ValueError, match="another training"):
        train(small_module(), *regression(), config=TrainConfig(epochs=4, lr=0.5), checkpoint_dir=tmp_path)
    assert free()
    next(train(small_module(), *regression(), config=CONFIG, checkpoint_dir=tmp_path))
    assert free()
    trained(tmp_path)
    assert free()


def test_a_newer_training_of_the_same_process_takes_over(tmp_path, monkeypatch):
    """An interrupted notebook cell keeps its stream alive; the cell that is run again must not be refused."""
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)
    old = train(small_module(), *regression(), config=CONFIG, checkpoint_dir=tmp_path)
    next(old)
    module, _ = trained(tmp_path)
    written = (tmp_path / LAST).read_bytes()
    with pytest.raises(RuntimeError, match="is in use"):
        list(old)
    old.close()
    assert (tmp_path / LAST).read_bytes() == written
    assert_same_bits(module, trained(None)[0])


def test_another_training_of_the_same_process_is_refused_and_disturbs_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)
    module = small_module()
    stream = train(module, *regression(), config=CONFIG, checkpoint_dir=tmp_path)
    next(stream)
    with pytest.raises(ValueError, match="another training"):
        train(small_module(), *regression(), config=TrainConfig(epochs=4, lr=0.5), checkpoint_dir=tmp_path)
    assert len(list(stream)) == 3
    assert_same_bits(module, trained(None)[0])


def test_a_folder_without_locks_trains_with_a_warning(tmp_path, monkeypatch):
    def no_locks(*args, **options):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("restt.train.checkpoint.FileLock.acquire", no_locks)
    with pytest.warns(RuntimeWarning, match="cannot be locked .*: make sure that no other process trains into it"):
        _, records = trained(tmp_path)
    assert len(records) == 4
    with pytest.warns(RuntimeWarning, match="cannot be locked"):
        assert all(record.replayed for record in trained(tmp_path)[1])
