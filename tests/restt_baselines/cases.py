"""Small real tables, and what every torch baseline with the runs axis must do."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import train_test_split

from restt.train import TrainConfig, train
from restt.train.runs import working_copy

TASKS = ("classification", "regression")


def digits(side: int = 8):
    """Training and test rows of the bundled digits; with ``side`` 4, averaged over blocks of 2×2 pixels."""
    X, y = load_digits(return_X_y=True)
    block = 8 // side
    coarse = X.reshape(-1, side, block, side, block).mean((2, 4)).reshape(len(X), -1)
    return train_test_split(coarse, y, test_size=0.3, random_state=0)


def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return train_test_split(X, y, test_size=0.3, random_state=0)


def score_after_fit(estimator, split) -> float:
    """Accuracy or R² on the test rows after a fit on the training rows."""
    X, X_test, y, y_test = split
    return estimator.fit(X, y).score(X_test, y_test)


def small_table(task: str, rows: int = 40, columns: int = 5):
    rng = np.random.default_rng(0)
    X = rng.random((rows, columns))
    y = X[:, 0] + 2 * X[:, 1] * X[:, 2]
    return X, (y > np.median(y)).astype(int) if task == "classification" else y


def assert_runs_are_independent(estimator) -> None:
    """Run k trained alone ends with the weights and buffers of run k among three, and run 0 starts with the same."""
    X, y = small_table("regression")
    columns = X.shape[1]
    x, target = torch.from_numpy(X).float(), torch.from_numpy(y).float()
    many = estimator.build(columns, 1, 3, 11)
    assert type(many.runs) is int
    alone = estimator.build(columns, 1, 1, 11)
    for name, value in alone.state_dict().items():
        assert torch.equal(value[0], many.state_dict()[name][0]), name
    assert any(not torch.equal(value[0], value[1]) for value in many.parameters() if value.numel())
    singles = [working_copy(many, [run]) for run in range(3)]
    settings = {"epochs": 3, "batch_size": 16, "lr": 1e-2, "seed": 5}
    for module, ids in [(many, [0, 1, 2]), *((single, [run]) for run, single in enumerate(singles))]:
        for _ in train(
            module,
            x,
            target,
            config=TrainConfig(**settings, run_ids=ids),
            feature_map=estimator.feature_map(),
        ):
            pass
    for run, single in enumerate(singles):
        for name, value in single.state_dict().items():
            torch.testing.assert_close(value[0], many.state_dict()[name][run], rtol=1e-4, atol=1e-5)


def assert_is_a_proper_estimator(make, **settings) -> None:
    """Both tasks: parameters survive cloning, the same seed gives the same fit, records and members are kept."""
    for task in TASKS:
        X, y = small_table(task)
        estimator = make(task, epochs=3, runs=2, random_state=4, device="cpu", **settings)
        twin = clone(estimator)
        assert twin.get_params() == estimator.get_params()
        first, second = estimator.fit(X, y).predict(X), twin.fit(X, y).predict(X)
        assert first.shape == (40,)
        assert np.array_equal(first, second)
        assert estimator.n_iter_ == len(estimator.history_) == 3
        assert len(estimator.history_[-1].train_loss) == estimator.module_.runs == 2
        if task == "classification":
            shares = estimator.predict_proba(X)
            assert shares.shape == (40, 2)
            np.testing.assert_allclose(shares.sum(1), 1)
        else:
            assert estimator.fit(X, np.stack([y, -y], axis=1)).predict(X).shape == (40, 2)
