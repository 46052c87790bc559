"""Two epochs of MNIST at r = 20: how long they take and what they reach. A slower machine reports its time.

python benchmarks/mnist_two_epochs.py
"""

from __future__ import annotations

import argparse
import time

import torch

import restt
from restt.train import TrainConfig, live_table, train

TARGET_SECONDS, TARGET_ACCURACY = 60.0, 0.90


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bond-dim", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="torch's CPU threads")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)

    data = restt.data.load("mnist")
    module = restt.ResTT(196, 2, options.bond_dim, 10, init="paper", device=options.device)
    module.reset_parameters(seed=0)
    config = TrainConfig.paper(
        epochs=options.epochs, lr=options.lr, schedule="warmup-cosine", warmup_epochs=0.2, seed=0
    )
    began = time.perf_counter()
    records = train(
        module,
        data.x_train,
        data.y_train,
        config=config,
        validation=(data.x_test, data.y_test),
        feature_map=restt.features.Trigonometric(),
    )
    accuracy = [record.validation["accuracy"][0] for record in live_table(records, options.epochs)][-1]
    seconds = time.perf_counter() - began
    print(
        f"{options.epochs} epochs at r={options.bond_dim}: {seconds:.1f} s with {torch.get_num_threads()} thread(s), "
        f"test accuracy {100 * accuracy:.2f} %"
    )
    reached = accuracy >= TARGET_ACCURACY and seconds <= TARGET_SECONDS
    wanted = f"{100 * TARGET_ACCURACY:.0f} % within {TARGET_SECONDS:.0f} s on 2 cores"
    print(f"target {wanted}: {'reached' if reached else 'not reached here'}")


if __name__ == "__main__":
    main()
