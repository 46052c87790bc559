"""Search for parameters on a cluster: scikit-learn's search through joblib's dask backend.

    pip install restt "dask[distributed]"
    python examples/dask_search.py --workers 2

Every candidate is one task, and dask gives the tasks of a worker that dies to another. What joblib hands to a single
worker dies with it, and tasks that need it would wait for ever; so the rows and the folds are given to all workers
beforehand, and nothing is lost as long as one of them lives. Here the cluster is this machine;
``Client("tcp://scheduler:8786")`` is any other.
"""

from __future__ import annotations

import argparse
from itertools import chain

import joblib
from dask.distributed import Client, LocalCluster
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV, KFold

from restt.estimators import ResTTNetRegressor

GRID = {"bond_dim": [2, 4, 8], "penalty": [0.005, 0.02, 0.1]}


def search(client: Client, epochs: int = 20, grid: dict[str, list] | None = None) -> GridSearchCV:
    """The finished search over the candidates of ``grid``, each fitted on three folds."""
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = ResTTNetRegressor(epochs=epochs, random_state=0)
    folds = list(KFold(3).split(X))
    found = GridSearchCV(model, GRID if grid is None else grid, cv=folds)
    with joblib.parallel_backend("dask", client=client, scatter=[X, y, *chain.from_iterable(folds)]):
        return found.fit(X, y)


def main(arguments: list[str] | None = None) -> None:
    """Start a cluster on this machine, search, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20)
    given = parser.parse_args(arguments)
    with LocalCluster(n_workers=given.workers, threads_per_worker=1) as cluster, Client(cluster) as client:
        found = search(client, given.epochs)
    print(f"best r2 {found.best_score_:.3f} with {found.best_params_}")


if __name__ == "__main__":
    main()
