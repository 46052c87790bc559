"""The processes of test_streams_together.py: ``python -m tests.train.streams_together SIZE FOLDER``."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from restt import ResTT
from restt.data import stream
from restt.estimators import ResTTNetRegressor, streams
from restt.train import TrainConfig, train
from tests.train.forked import fork
from tests.train.problems import measured, weights

CONFIG = TrainConfig(epochs=3, batch_size=50, lr=1e-2, dropout=0.2, ema=0.9, seed=1)
COLUMNS = ["a", "b", "c"]


def trained(folder: Path, **options: Any) -> tuple[dict[str, torch.Tensor], list[dict]]:
    module = ResTT(sites=3, feature_dim=2, bond_dim=2, outputs=1)
    module.reset_parameters(seed=0)
    rows = stream(folder, "y", columns=COLUMNS, shuffle_block=120)
    records = train(
        module,
        rows,
        config=CONFIG,
        feature_map=lambda x: torch.stack([torch.ones_like(x), x], dim=-1).float(),
        **options,
    )
    found = [measured(record) for record in records]
    return weights(module), found


def small_samples() -> None:
    """Samples of 300 rows."""
    streams.SAMPLE_ROWS = 300


def surveyed(folder: Path) -> dict[str, Any]:
    frame, y, weights, sample = streams.read_stream(ResTTNetRegressor(), stream(folder, "y"), None, None)
    assert sample is not None
    return {"numbers": sample.numbers, "weights": weights, "y": y, "kind": list(frame["kind"])}


def fitted(folder: Path) -> np.ndarray:
    model = ResTTNetRegressor(bond_dim=2, epochs=3, batch_size=64, random_state=0, precision="float64")
    model.fit(stream(folder, "y", shuffle_block=120))
    return model.module_(torch.full((1, 4, max(model.module_.feature_dims)), 0.3, dtype=torch.float64)).detach().numpy()


def refused(work: Any) -> str:
    try:
        work()
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def main(rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    rendezvous, timeout = f"file://{folder / 'rendezvous'}", datetime.timedelta(seconds=120)
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=size, timeout=timeout)
    found: dict[str, Any] = {}
    found["weights"], found["records"] = trained(folder / "table")
    small_samples()
    found["survey"] = surveyed(folder / "table")
    found["fitted"] = fitted(folder / "table")
    # What rank 1 alone is given.
    odd = {name: folder / name if rank == 1 else folder / "table" for name in ("shorter", "page")}
    found["shorter"] = refused(lambda: trained(odd["shorter"]))
    found["page"] = refused(lambda: fitted(odd["page"]))
    torch.save(found, folder / f"streams-{rank}.pt")


if __name__ == "__main__":
    fork(lambda rank: main(rank, int(sys.argv[1]), Path(sys.argv[2])), int(sys.argv[1]))
