"""Tasks as a column: what is shared, what is not, and a task that was not there."""

import numpy as np
import pandas as pd
import pytest

from restt import ResTTRegressor, tasks


def several(rows: int, own: float, seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Four tasks with a common function and one of their own."""
    rng = np.random.default_rng(seed)
    found = {}
    for k in range(4):
        x = rng.uniform(-1, 1, (rows, 2))
        y = np.sin(3 * x[:, 0]) + own * (k - 1.5) * x[:, 1] + k + 0.05 * rng.standard_normal(rows)
        found[f"task {k}"] = x, y
    return found


def model() -> ResTTRegressor:
    return ResTTRegressor(effort="quick", handle_unknown="error", random_state=0)


def test_few_rows_of_a_task_lean_on_the_others():
    train, test = several(14, own=0.1), several(200, own=0.1, seed=1)
    joint = model().fit(*tasks.join(train))
    together = [np.mean((joint.predict(tasks.as_task(x, name)) - y) ** 2) for name, (x, y) in test.items()]
    alone = [np.mean((model().fit(*train[name]).predict(x) - y) ** 2) for name, (x, y) in test.items()]
    assert np.mean(together) < 0.5 * np.mean(alone)


def test_shared_is_read_off():
    alike, apart = (tasks.shared(model().fit(*tasks.join(several(40, own)))) for own in (0.0, 1.0))
    for found in (alike, apart):
        assert found.common + found.level + found.own == pytest.approx(1)
    assert alike.own < 0.02 < 0.1 < apart.own
    assert alike.level > 0.5  # constants 0, 1, 2, 3 against a sine


def test_outputs_as_tasks_may_be_missing():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (60, 1))
    y = np.hstack([x, x + 1])
    y[::2, 1] = np.nan
    table, values = tasks.join_outputs(pd.DataFrame(x, columns=["a"]), y, ["u", "v"])
    assert len(values) == 90
    found = model().fit(table, values).predict(tasks.as_task(pd.DataFrame({"a": [0.5]}), "v"))
    assert found[0] == pytest.approx(1.5, abs=0.1)


def test_names_what_does_not_fit():
    fitted = model().fit(*tasks.join(several(10, own=0.0)))
    with pytest.raises(ValueError, match=r"category 'task 9' .* unseen in the fit; known are"):
        fitted.predict(tasks.as_task(np.zeros((2, 2)), "task 9"))
    with pytest.raises(ValueError, match="task 'b' has the columns"):
        tasks.join({"a": (np.zeros((2, 1)), [0, 1]), "b": (np.zeros((2, 2)), [0, 1])})
    with pytest.raises(ValueError, match="y of task 'a' must have 2 entries"):
        tasks.join({"a": (np.zeros((2, 1)), [0])})
    with pytest.raises(TypeError, match="tables must be a mapping"):
        tasks.join([(np.zeros((2, 1)), [0, 1])])
    with pytest.raises(ValueError, match="column 'task' already"):
        tasks.as_task(pd.DataFrame({"task": [1]}), "a")
    with pytest.raises(ValueError, match="without a column 'task'"):
        tasks.shared(model().fit(np.random.default_rng(0).random((20, 2)), np.arange(20.0)))
