"""Training on a GPU at the paper's size: does precision cost accuracy, does the guard hold, what does an epoch take?

    python benchmarks/gpu_training.py precision guard --output DIR

``precision``: MNIST, r = 100, 10 epochs, 5 seeds side by side, with float32, tf32 and bf16 products.
``guard``: Fashion-MNIST, r = 100, Adam at a constant 1e-3, 100 epochs, 10 runs side by side; all must end finite.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

import restt
from restt._common.files import write_json_atomic
from restt._common.provenance import provenance
from restt.train import TrainConfig, train

PRECISIONS = ("float32", "tf32", "bf16")
ALLOWED_LOSS = 0.1  # points of accuracy


def fit(dataset: str, options: argparse.Namespace, runs: int, config: TrainConfig) -> dict[str, Any]:
    """Train ``runs`` seeds side by side on the whole training set; test accuracy after every epoch."""
    data = restt.data.load(dataset)
    module = restt.ResTT(196, 2, options.bond_dim, 10, init="paper", sigma2=0.01, runs=runs, device=options.device)
    module.reset_parameters(seed=options.seed)
    rows = len(data.x_train[: options.rows])
    began = time.perf_counter()
    records, events = [], []
    for record in train(
        module,
        data.x_train[:rows],
        data.y_train[:rows],
        config=config,
        validation=(data.x_test, data.y_test),
        feature_map=restt.features.Trigonometric(),
    ):
        records.append(record)
        events += [{"epoch": record.epoch, **vars(event)} for event in record.events]
        accuracy = [record.validation["accuracy"][run] for run in record.runs]
        print(
            dataset, record.epoch, f"{100 * sum(accuracy) / len(accuracy):.2f} %", f"{record.seconds:.2f} s", flush=True
        )
        for event in record.events:
            print("   ", event.kind, event.run, event.message, flush=True)
    finite = all(bool(parameter.isfinite().all()) for parameter in module.parameters())
    peak = torch.cuda.max_memory_allocated() / 2**30 if options.device == "cuda" else None
    return {
        "dataset": dataset,
        "bond_dim": options.bond_dim,
        "runs": runs,
        "rows": rows,
        "config": config.to_dict(),
        "final_accuracy": [100 * value for value in evaluate_runs(module, data)],
        "records": [record.to_dict() for record in records],
        "wall_seconds": time.perf_counter() - began,
        "peak_gib": peak,
        "events": events,
        "weights_finite": finite,
    }


@torch.no_grad()
def evaluate_runs(module: restt.ResTT, data: restt.data.Dataset) -> list[float]:
    """Test accuracy of the weights each run ended with, also of runs that stopped early."""
    x = restt.features.Trigonometric()(data.x_test.to(module.first.device))
    return (module(x).argmax(-1) == data.y_test.to(x.device)).float().mean(-1).tolist()


def precision(options: argparse.Namespace) -> dict[str, Any]:
    """The same seeds under each precision, and how far the means lie from float32's."""
    config = TrainConfig.paper(epochs=options.epochs or 10, lr=1e-3, schedule="cosine", seed=options.seed)
    found = {}
    for name in PRECISIONS:
        with restt.chain.precision(name):
            found[name] = fit("mnist", options, options.runs or 5, config)
    means = {name: sum(result["final_accuracy"]) / len(result["final_accuracy"]) for name, result in found.items()}
    gaps = {name: mean - means["float32"] for name, mean in means.items()}
    met = all(gap >= -ALLOWED_LOSS for gap in gaps.values())
    return {"results": found, "mean_accuracy": means, "points_above_float32": gaps, "met": met}


def guard(options: argparse.Namespace) -> dict[str, Any]:
    """A constant rate that is known to explode late."""
    config = TrainConfig.paper(epochs=options.epochs or 100, lr=1e-3, seed=options.seed)
    result = fit("fashion-mnist", options, options.runs or 10, config)
    rolled_back = [event for event in result["events"] if event["kind"] in ("rolled-back", "failed")]
    return {"result": result, "roll_backs": len(rolled_back), "met": result["weights_finite"]}


def command(name: str, options: argparse.Namespace, parser: argparse.ArgumentParser) -> str:
    """What gives a result again; where it is written plays no part."""
    changed = {
        option: value
        for option, value in vars(options).items()
        if option not in ("experiments", "output") and value != parser.get_default(option)
    }
    words = [f"--{option.replace('_', '-')} {value}" for option, value in changed.items()]
    return " ".join(["python benchmarks/gpu_training.py", name, *words])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("experiments", nargs="+", choices=["precision", "guard"])
    parser.add_argument("--output", type=Path, default=Path("results/bench"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--bond-dim", type=int, default=100)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--rows", type=int, help="only so many training images, to try the script out")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.experiments:
        origin = provenance(options.device, seed=options.seed, command=command(name, options, parser))
        document = {"provenance": origin, **{"precision": precision, "guard": guard}[name](options)}
        write_json_atomic(options.output / f"gpu_{name}.json", document)
        summary = {key: value for key, value in document.items() if key not in ("results", "result", "provenance")}
        print(name, summary, flush=True)


if __name__ == "__main__":
    main()
