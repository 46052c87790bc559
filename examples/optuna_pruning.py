"""Search for parameters with Optuna, and stop hopeless trials early from the stream of epochs.

    pip install restt[tune]
    python examples/optuna_pruning.py --trials 20

``fit_epochs`` yields one record per epoch. Each trial reports the validation loss of its epochs, and Optuna's pruner
says when a trial is worse than the others were at that point: leaving the loop ends the training.
"""

from __future__ import annotations

import argparse

import optuna
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from restt.estimators import ResTTNetRegressor


def search(trials: int, epochs: int, seed: int) -> optuna.Study:
    """The finished study; its value is the lowest validation loss, of the standardised target."""
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X_train, X_held, y_train, y_held = train_test_split(X, y, test_size=0.3, random_state=seed)

    def objective(trial: optuna.Trial) -> float:
        model = ResTTNetRegressor(
            bond_dim=trial.suggest_int("bond_dim", 2, 16, log=True),
            penalty={
                "chain": trial.suggest_float("chain penalty", 1e-3, 1.0, log=True),
                "linear": trial.suggest_float("linear penalty", 1e-4, 1e-1, log=True),
            },
            lr=trial.suggest_float("lr", 3e-3, 1e-1, log=True),
            epochs=epochs,
            random_state=seed,
        )
        best = float("inf")
        for record in model.fit_epochs(X_train, y_train, validation=(X_held, y_held)):
            (loss,) = record.validation["loss"]
            best = min(best, loss)
            trial.report(loss, record.epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        return best

    study = optuna.create_study(
        direction="minimize",
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=epochs // 5),
    )
    study.optimize(objective, n_trials=trials)
    return study


def main(arguments: list[str] | None = None) -> None:
    """Run the search and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = search(given.trials, given.epochs, given.seed)
    pruned = sum(trial.state == optuna.trial.TrialState.PRUNED for trial in study.trials)
    print(f"{len(study.trials)} trials, {pruned} of them stopped early")
    print(f"best validation loss {study.best_value:.4f} with {study.best_params}")


if __name__ == "__main__":
    main()
