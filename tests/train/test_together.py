"""Two processes that train one model, against one process: the same numbers, refusals, and what a killed one leaves."""

import os
import shutil
import signal

import pytest
import torch

from restt._common.ranks import Ranks, read_group
from restt.train.data import Batches, read_data
from tests.train import together
from tests.train.forked import launch
from tests.train.problems import regression

pytestmark = pytest.mark.skipif(
    not (hasattr(os, "fork") and torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="needs gloo and fork",
)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """The folder of two processes of which the second was killed, what each found, and how each ended."""
    folder = tmp_path_factory.mktemp("together")
    ends = launch("tests.train.together", "begun", "2", str(folder))
    assert (folder / "begun-0.pt").exists(), ends[0][2]
    assert (folder / "begun-1.pt").exists(), ends[1][2]
    found = [torch.load(folder / f"begun-{rank}.pt", weights_only=False) for rank in range(2)]
    return folder, found, ends


@pytest.fixture(scope="module")
def found(begun):
    return begun[1]


def assert_close(one, other, tolerance):
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=tolerance, atol=tolerance)


def test_two_processes_equal_one(found):
    expected, records = together.trained_runs(group=None)
    assert_close(found[0]["runs"], expected, 1e-6)
    assert [record["events"] for record in found[0]["records"]] == [record["events"] for record in records]
    assert any("rolled-back" in record["events"] for record in records)
    for one, other in zip(found[0]["records"], records, strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-6)
        assert one["validation"].keys() == other["validation"].keys()
        for name, values in other["validation"].items():
            # One minus a ratio may be next to 0, so r2 is compared on the scale of the ratio.
            assert one["validation"][name] == pytest.approx(values, rel=1e-6, abs=1e-6 if name == "r2" else 0.0)


def test_both_processes_have_the_same_bits(found):
    assert found[0]["records"] == found[1]["records"]
    for part in ("runs", "classes", "saved"):
        assert_close(found[0][part], found[1][part], 0.0)


def test_initial_weights_are_those_of_rank_0(found):
    assert_close(found[0]["classes"], together.trained_classes(group=None), 1e-6)


def test_an_estimator_is_the_same_in_both_without_a_random_state(begun):
    _, found, ends = begun
    assert (found[0]["predictions"] == found[1]["predictions"]).all()
    assert "epoch" in ends[0][1]
    assert ends[1][1] == ""


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("other rate", ["lr: 0.01 on rank 0, 0.1 on rank 1"]),
        ("other rows", ["x: (60, 5, 2) float32", "on rank 0, (60, 5, 2) float32", "on rank 1"]),
    ],
)
def test_ranks_with_other_arguments_are_refused_on_all(found, what, named):
    assert found[0][what] == found[1][what]
    assert "must be given the same arguments and rows" in found[0][what]
    assert all(text in found[0][what] for text in named)


def test_what_one_rank_cannot_read_stops_all(found):
    assert "rank 1 of 2 could not read its arguments" in found[0]["other columns"]
    own = found[1]["other columns"].split(": ", 1)[1]
    assert own in found[0]["other columns"]


def test_a_killed_process_ends_the_job_and_a_restart_has_the_same_bits(begun):
    folder, found, ends = begun
    assert ends[1][0] == -signal.SIGKILL
    assert ends[0][0] == 1
    assert f"training stopped in epoch {together.KILLED_AFTER + 1}" in ends[0][2]
    assert f"epoch {together.KILLED_AFTER} is saved in" in ends[0][2]
    shutil.copytree(folder / "killed", folder / "alone")
    alone, _ = together.saved_training(folder / "alone", killed=False)
    assert_close(alone, found[0]["saved"], 1e-6)
    again = launch("tests.train.together", "again", "2", str(folder))
    assert [end[0] for end in again] == [0, 0], again
    for rank in range(2):
        resumed = torch.load(folder / f"again-{rank}.pt", weights_only=False)
        replayed = [epoch <= together.KILLED_AFTER for epoch in range(1, together.SAVED.epochs + 1)]
        assert resumed["replayed"] == replayed
        assert_close(resumed["resumed"], found[0]["saved"], 0.0)


def test_parts_of_all_ranks_make_the_batch():
    x, y = regression(rows=23)
    rows = read_data(x, y[:, None], None, None, 1)
    parts = []
    for rank in range(3):
        ranks = Ranks()
        ranks.rank, ranks.size = rank, 3
        parts.append(list(Batches(rows, 11, [0], [0], ranks=ranks).epoch(1)))
    for whole, *own in zip(Batches(rows, 11, [0], [0]).epoch(1), *parts, strict=True):
        counted = [part.share[0] > 0 for part in own]
        joined = torch.cat([part.x[:, kept] for part, kept in zip(own, counted, strict=True)], dim=1)
        assert torch.equal(joined, whole.x)
        assert sum(float(part.share.sum()) for part in own) == pytest.approx(1.0)
        assert all(part.count == whole.count for part in own)


def test_group_is_auto_a_group_or_none():
    assert read_group("auto").size == read_group(None).size == 1
    with pytest.raises(TypeError, match=r"group must be .* got 'gloo'"):
        read_group("gloo")
