"""Score trains with tied cores beside other models of sequences.

    python tools/score_sequences.py

A generated system with known kernels (order 3, memory 3, noise), one step ahead of statsmodels' yearly sunspots, and
classes of the problems that aeon bundles, those of them that are installed. Written to results/sequences.json.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from common import be_quiet, write_results
from sklearn.linear_model import RidgeCV

from restt import ResTTForecaster, ResTTRegressor, ResTTSequenceClassifier, VolterraRegressor
from restt.sequences.estimators import Scaling, read_sequences
from restt.train import TrainConfig, train

PROBLEMS = ("ItalyPowerDemand", "ArrowHead", "BasicMotions")


class GRU(torch.nn.Module):
    """A gated recurrent unit of as wide a state as the trains have, and a linear head."""

    def __init__(self, features: int, outputs: int, width: int = 16) -> None:
        super().__init__()
        self.cell = torch.nn.GRU(features, width, batch_first=True)
        self.head = torch.nn.Linear(width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0][:, -1])


@torch.enable_grad()
def gru(x: torch.Tensor, y: torch.Tensor, outputs: int) -> GRU:
    """A GRU trained as the trains are."""
    torch.manual_seed(0)
    module = GRU(x.shape[2], outputs)
    config = TrainConfig(epochs=200, batch_size=min(64, len(x)), lr=0.01, schedule="cosine", clip_norm=1.0, seed=0)
    for _ in train(module, x, y, config=config):
        pass
    return module


def r2(predicted: np.ndarray, wanted: np.ndarray) -> float:
    return float(1 - np.mean((predicted - wanted) ** 2) / np.var(wanted))


def system() -> dict[str, Callable[[], float]]:
    """y(t) from u(t), u(t-1), u(t-2): R² on 500 new samples, noise-free."""
    rng = np.random.default_rng(0)
    u = rng.standard_normal(1500)
    one, two = (np.concatenate([np.zeros(lag), u[:-lag]]) for lag in (1, 2))
    clean = 0.3 + 0.8 * u + 0.5 * one + 0.4 * u * one - 0.2 * one**2 + 0.3 * u * one * two
    y = clean + 0.3 * rng.standard_normal(len(u))
    windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([np.zeros(4), u]), 5)
    scaling = Scaling.fit([u[:1000, None]])
    x, target = scaling.features([row[:, None] for row in windows]), torch.from_numpy(y).float()[:, None]

    def volterra(solver: str) -> float:
        model = VolterraRegressor(3, 5, solver=solver, bond_dim=4, random_state=0).fit(u[:1000], y[:1000])
        return r2(model.predict(u)[1000:], clean[1000:])

    def linear() -> float:
        return r2(RidgeCV(np.logspace(-6, 3, 10)).fit(windows[:1000], y[:1000]).predict(windows[1000:]), clean[1000:])

    def recurrent() -> float:
        with torch.no_grad():
            return r2(gru(x[:1000], target[:1000], 1)(x[1000:])[:, 0].numpy(), clean[1000:])

    return {
        "Volterra, ridge": lambda: volterra("exact"), "Volterra, plain train": lambda: volterra("train"),
        "Volterra, residual train": lambda: volterra("residual"), "linear": linear, "GRU": recurrent,
    }  # fmt: skip


def sunspots() -> dict[str, Callable[[], float]]:
    """One step ahead over the last 80 years: R²."""
    from statsmodels.datasets import sunspots as data

    series = data.load_pandas().data["SUNACTIVITY"].to_numpy()
    memory, cut = 12, len(series) - 80
    windows = np.lib.stride_tricks.sliding_window_view(series[:-1], memory)
    following = series[memory:]
    fit = cut - memory

    def train_ahead() -> float:
        model = ResTTForecaster(memory=memory, random_state=0).fit(series[:cut])
        return r2(model.predict_ahead(series[cut - memory :]), series[cut:])

    def linear() -> float:
        model = RidgeCV(np.logspace(-3, 6, 19)).fit(windows[:fit], following[:fit])
        return r2(model.predict(windows[fit:]), series[cut:])

    def recurrent() -> float:
        scaling = Scaling.fit([series[:cut, None]])
        x = scaling.features([row[:, None] for row in windows])
        change = torch.from_numpy((following - windows[:, -1]) / scaling.change).float()[:, None]
        with torch.no_grad():
            found = gru(x[:fit], change[:fit], 1)(x[fit:])[:, 0].numpy() * scaling.change + windows[fit:, -1]
        return r2(found, series[cut:])

    def volterra() -> float:
        table = VolterraRegressor(2, 1, feedback=memory).fit(np.zeros(cut), series[:cut])
        return r2(table.predict(np.zeros(len(series)), series)[cut:], series[cut:])

    def lags() -> float:
        model = ResTTRegressor(random_state=0).fit(windows[:fit], (following - windows[:, -1])[:fit])
        return r2(model.predict(windows[fit:]) + windows[fit:, -1], series[cut:])

    return {
        "ResTTForecaster": train_ahead, "ResTTRegressor of lags": lags, "linear": linear, "GRU": recurrent,
        "Volterra, ridge": volterra,
    }  # fmt: skip


def classes(name: str) -> dict[str, Callable[[], float]]:
    """Accuracy on the published test part."""
    from aeon.datasets import load_classification

    (x, y), (new, wanted) = (load_classification(name, split=part) for part in ("train", "test"))
    ours, theirs = x.swapaxes(1, 2), new.swapaxes(1, 2)  # (B, T, channels)

    def train_of() -> float:
        return float(ResTTSequenceClassifier(random_state=0).fit(ours, y).score(theirs, wanted))

    def recurrent() -> float:
        names, numbers = np.unique(y, return_inverse=True)
        sequences = read_sequences(ours)
        scaling = Scaling.fit(sequences)
        module = gru(scaling.features(sequences), torch.from_numpy(numbers), len(names))
        with torch.no_grad():
            found = module(scaling.features(read_sequences(theirs))).argmax(1).numpy()
        return float(np.mean(names[found] == wanted))

    def rocket() -> float:
        from aeon.classification.convolution_based import RocketClassifier

        return float(RocketClassifier(random_state=0).fit(x, y).score(new, wanted))

    return {"ResTTSequenceClassifier": train_of, "GRU": recurrent, "ROCKET": rocket}


def main() -> None:
    be_quiet()
    content: dict[str, Any] = {"title": "Sequences: R², or accuracy for classes", "problems": {}}
    problems: dict[str, Callable[[], dict[str, Callable[[], float]]]] = {"known kernels": system}
    if find_spec("statsmodels"):
        problems["sunspots"] = sunspots
    if find_spec("aeon"):
        problems |= {name: lambda name=name: classes(name) for name in PROBLEMS}
    for problem, models in problems.items():
        scores = content["problems"][problem] = {}
        for name, score in models().items():
            began = time.process_time()
            try:
                scores[name] = {"score": score(), "cpu_seconds": time.process_time() - began}
            except ImportError as error:
                scores[name] = {"left_out": str(error)}
            print(problem, name, scores[name], flush=True)
    write_results("sequences.json", content, "score_sequences.py")


if __name__ == "__main__":
    main()
