"""Progress, callbacks, history and the settings."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from restt import ResTT, ResTTNetClassifier, ResTTNetRegressor
from restt._common.devices import fitting_threads
from restt.estimators import net, progress
from restt.estimators.settings import read_penalty, settle
from restt.estimators.targets import Labels
from restt.train import Penalty
from tests.estimators.conftest import QUICK, short_fits


class Recorder:
    """A callback of scikit-learn's protocol; asks to stop after ``stop_after`` epochs."""

    def __init__(self, stop_after=None):
        self.calls, self.scores, self.stop_after = [], [], stop_after

    def setup(self, estimator, context):
        self.calls.append("setup")

    def teardown(self, estimator, context):
        self.calls.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.calls.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.calls.append(f"end {context.task_name}")
        self.scores.append((fitted_estimator, fitted_estimator.score(X, y)))
        return self.stop_after is not None and len(self.scores) >= self.stop_after


def observed_fit(model, x, y, recorder):
    if not progress.SUPPORTED:
        pytest.skip("this scikit-learn has no callbacks; they came with 1.9")
    return model.set_callbacks(recorder).fit(x, y)


@short_fits
def test_callbacks_see_every_epoch(numbers):
    x, y = numbers
    recorder = Recorder()
    model = observed_fit(ResTTNetRegressor(bond_dim=3, epochs=3, random_state=0), x, y, recorder)
    epochs = ["begin epoch", "end epoch"] * 3
    assert recorder.calls == ["setup", "begin fit", *epochs, "end fit", "teardown"]
    for seen, score in recorder.scores:
        assert seen.score(x, y) == score
    assert len({score for _, score in recorder.scores[:3]}) == 3
    assert recorder.scores[-1][1] == model.score(x, y)


def test_a_callback_can_stop_the_fit(numbers):
    recorder = Recorder(stop_after=2)
    model = observed_fit(ResTTNetRegressor(bond_dim=3, epochs=9, random_state=0), *numbers, recorder)
    assert model.n_iter_ == 2
    assert recorder.calls[-2:] == ["end fit", "teardown"]


def test_callbacks_with_early_stopping_end_in_order(numbers):
    x, _ = numbers
    recorder = Recorder()
    noise = np.random.default_rng(0).integers(0, 2, 60)
    model = observed_fit(ResTTNetClassifier(random_state=0, epochs=300, early_stopping=3, runs=2), x, noise, recorder)
    assert model.n_iter_ < 300
    assert recorder.calls.count("begin epoch") == recorder.calls.count("end epoch") == model.n_iter_


def test_callbacks_are_torn_down_after_an_error(numbers):
    class Failing(Recorder):
        def on_fit_task_end(self, estimator, context):
            raise RuntimeError("stop here")

    recorder = Failing()
    with pytest.raises(RuntimeError, match="stop here"):
        observed_fit(ResTTNetRegressor(**QUICK), *numbers, recorder)
    assert recorder.calls[-1] == "teardown"


def test_without_the_callback_api_records_pass(monkeypatch, numbers):
    monkeypatch.setattr(progress, "SUPPORTED", False)
    assert ResTTNetRegressor(**QUICK).fit(*numbers).n_iter_ == 30


def test_verbose_zero_is_silent(numbers, capsys):
    ResTTNetRegressor(**QUICK).fit(*numbers)
    assert capsys.readouterr() == ("", "")


def test_verbose_one_prints_ten_lines_as_it_goes(numbers, capsys):
    model = ResTTNetRegressor(**QUICK, verbose=1)
    records = model.fit_epochs(*numbers)
    next(records)
    assert capsys.readouterr().out.startswith("epoch 1/30 · loss ")
    for _ in records:
        pass
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[1] for line in shown] == [f"{epoch}/30" for epoch in range(3, 31, 3)]


def test_verbose_one_ends_with_the_epoch_at_which_it_was_left(numbers, capsys):
    for record in ResTTNetRegressor(**QUICK, verbose=1).fit_epochs(*numbers):
        if record.epoch == 5:
            break
    shown = capsys.readouterr().out
    assert [line.split(" ")[1] for line in shown.splitlines()] == ["1/30", "3/30", "5/30"]
    assert shown.endswith("\n")


@short_fits
def test_verbose_two_is_a_line_per_epoch(numbers, capsys):
    ResTTNetRegressor(**{**QUICK, "epochs": 12}, verbose=2).fit(*numbers)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[1] for line in shown] == [f"{epoch}/12" for epoch in range(1, 13)]


def test_history_is_a_table_of_plain_columns(numbers):
    x, y = numbers
    model = ResTTNetRegressor(**QUICK, runs=2, early_stopping=5).fit(x, y)
    frame = model.history_.to_frame()
    last = model.history_[-1]
    for name in ("epoch", "run", "train_loss", "lr", "gradient_norm", "validation_loss", "validation_r2", "seconds"):
        assert frame[name].dtype.kind in "if", name
    assert len(frame) == sum(len(record.runs) for record in model.history_)
    final = frame[frame["epoch"] == last.epoch].set_index("run")
    for run in last.runs:
        assert final.loc[run, "train_loss"] == last.train_loss[run]
        assert final.loc[run, "validation_r2"] == last.validation["r2"][run]
    assert frame["events"].iloc[-1] == last.events[-1].message


def settings(rows=100, width=80, bond_dim=10, runs=1, **options):
    settled = {"device": "cpu", "precision": "auto", "batch_size": "auto", "epochs": "auto", **options}
    return settle(rows, width, bond_dim, runs, **settled)


def test_small_tables_train_in_one_batch_of_float64():
    small = settings(rows=2048)
    assert (small.batch_size, small.epochs, small.dtype) == (None, 150, torch.float64)


def test_large_tables_train_in_batches_of_float32():
    large = settings(rows=60_000, width=1000)
    assert (large.batch_size, large.epochs, large.dtype) == (512, 20, torch.float32)
    assert settings(rows=5000).epochs == 20
    assert settings(rows=2100).epochs == 30


def test_what_the_user_says_holds():
    given = settings(precision="bf16", batch_size=10, epochs=7, device=torch.device("cpu"))
    assert (given.batch_size, given.epochs, given.precision, given.dtype) == (10, 7, "bf16", torch.float32)
    assert settings(batch_size=100).batch_size is None


def test_interactions_pay_more():
    assert read_penalty("auto", 0.02) == Penalty(chain=0.2, linear=0.02, head=0.02)
    assert read_penalty(0.1, 0.02) == Penalty(chain=1.0, linear=0.1, head=0.1)
    assert read_penalty({"chain": 1.0}, 0.02) == Penalty(chain=1.0)
    assert read_penalty(None, 0.02) is None
    assert read_penalty(Penalty(head=2.0), 0.02) == Penalty(head=2.0)


def test_penalty_follows_the_size_of_the_loss():
    squares = Labels(np.array([0, 1]), np.array([0.5, 0.5]), None, logits=False)
    assert squares.auto_penalty(100) == pytest.approx(0.02 * 0.25)
    assert replace(squares, logits=True).auto_penalty(10_000) == 0.005


def test_small_problems_use_one_thread_and_give_the_others_back(numbers):
    torch.set_num_threads(2)
    try:
        seen = []
        model = ResTTNetRegressor(**QUICK)
        original = ResTT.forward

        def watching(self, x):
            seen.append(torch.get_num_threads())
            return original(self, x)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ResTT, "forward", watching)
            for _ in model.fit_epochs(*numbers):
                assert torch.get_num_threads() == 2
            seen_in_training = set(seen[1:])
            model.predict(numbers[0])
        assert seen_in_training == {1} == set(seen[-1:])
        assert torch.get_num_threads() == 2
        with fitting_threads(1e12):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_a_small_table_is_encoded_on_one_thread(numbers, monkeypatch):
    torch.set_num_threads(2)
    try:
        seen = []
        original = net.fit_encoding

        def watching(*arguments, **options):
            seen.append(torch.get_num_threads())
            return original(*arguments, **options)

        monkeypatch.setattr(net, "fit_encoding", watching)
        ResTTNetRegressor(**QUICK).fit(*numbers)
        assert seen == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


@pytest.mark.skipif(not progress.SUPPORTED, reason="this scikit-learn has no callbacks")
def test_without_callbacks_no_epoch_has_a_context(numbers, monkeypatch):
    made = []
    inner = ResTTNetRegressor._init_callback_context
    monkeypatch.setattr(
        ResTTNetRegressor, "_init_callback_context", lambda self, **given: made.append(given) or inner(self, **given)
    )
    assert len(ResTTNetRegressor(**QUICK).fit(*numbers).history_) == QUICK["epochs"]
    assert not made
    observed_fit(ResTTNetRegressor(**QUICK), *numbers, Recorder())
    assert len(made) == 1
