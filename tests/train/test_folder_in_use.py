"""One training at a time uses a checkpoint folder."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from restt._common import lock as lock_module
from restt._common.lock import claimed
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
    with pytest.raises(RuntimeError, match=rf"{tmp_path} is in use: process {other_process.pid} trains into it"):
        trained(tmp_path)
    other_process.send_signal(signal.SIGKILL)
    other_process.wait()
    assert (tmp_path / LOCK).exists()
    module, records = trained(tmp_path)
    assert len(records) == 4
    assert not (tmp_path / LOCK).exists()
    assert_same_bits(module, trained(None)[0])


def test_the_folder_is_free_again_however_a_training_ends(tmp_path, monkeypatch):
    def free():
        with claimed(tmp_path / LOCK, wait=False) as ours:
            return ours

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


def test_leftovers_of_killed_writes_are_tidied(tmp_path):
    leftover = tmp_path / f".{LAST}.abc.part"
    leftover.write_bytes(b"half")
    trained(tmp_path)
    assert not leftover.exists()


def test_a_finished_training_is_told_from_a_folder_that_may_only_be_read(tmp_path, monkeypatch):
    trained(tmp_path)

    def read_only(*args, **options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(lock_module, "_open", read_only)
    monkeypatch.setattr("restt._common.files.unfinished", read_only)
    assert all(record.replayed for record in trained(tmp_path)[1])
    with pytest.raises(PermissionError, match="could not write a checkpoint to"):
        trained(tmp_path / "new")


def test_a_file_system_without_locks_trains_with_a_warning(tmp_path, monkeypatch):
    def no_locks(descriptor):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock_module, "_try_lock", no_locks)
    with pytest.warns(RuntimeWarning, match="has no locks: make sure that no other process trains into it"):
        _, records = trained(tmp_path)
    assert len(records) == 4
