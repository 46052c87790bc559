"""Whole training steps and inference: the fused chain, the eager one, and the peers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import cross_entropy, mse_loss

import restt
from gpu.limits import ceilings, limit_ms
from gpu.measure import (
    BATCH,
    DEVICE,
    OUTPUTS,
    SITES,
    TINY_BATCH,
    TINY_SITES,
    Record,
    features,
    graphed,
    guarded,
    kernel_times,
    milliseconds,
)
from restt.train.cuda_graph import GraphedStep
from restt_bench.case import Case
from restt_bench.contenders.base import Contender
from restt_bench.contenders.tensorkrowch import TensorKrowch
from restt_bench.contenders.textbook import Textbook

IMAGES, TINY_IMAGES = 10_000, 50


def time_all(tiny: bool) -> Record:
    """Our steps with their limits, inference, and everybody else's steps."""
    sites, batch = (TINY_SITES, TINY_BATCH) if tiny else (SITES, BATCH)
    bonds = (4,) if tiny else (20, 50, 100)
    found: Record = {"ceilings": guarded(ceilings, 64 if tiny else 8192), "steps": []}
    plans = [(bond, precision, runs, 2) for bond in bonds for precision in ("tf32", "bf16") for runs in (1, 10)]
    plans += [(bonds[-1], precision, 1, 8) for precision in ("tf32", "bf16")] + [(bonds[-1], "float32", 1, 2)]
    if tiny:
        plans = [(4, "tf32", 2, 2), (4, "bf16", 1, 3)]
    for bond, precision, runs, width in plans:
        setting = {"bond": bond, "precision": precision, "runs": runs, "width": width, "loss": "mse"}
        record = guarded(fused_step, bond, precision, runs, width, sites, batch)
        if "error" not in found["ceilings"]:
            record["limit_ms"] = limit_ms(found["ceilings"], bond, precision, runs, width, sites, batch)
        found["steps"].append({**setting, **record})
    cross = {"bond": bonds[0], "precision": "tf32", "runs": 1, "width": 2, "loss": "cross entropy"}
    found["steps"].append({**cross, **guarded(fused_step, bonds[0], "tf32", 1, 2, sites, batch, classify=True)})
    images = TINY_IMAGES if tiny else IMAGES
    found["inference"] = [
        {"bond": bonds[-1], "precision": name, "images": images, **guarded(inference, bonds[-1], name, images, sites)}
        for name in ("tf32", "bf16")
    ]
    found["peers"] = []
    for bond in bonds:
        found["peers"].append({"name": "eager, graph", "bond": bond, **guarded(eager_step, bond, sites, batch)})
        for peer in (Textbook(), TensorKrowch(), TensorKrowch(inline=True)):
            found["peers"].append({"name": peer.name, "bond": bond, **guarded(peer_step, peer, bond, sites, batch)})
    return found


def fused_step(
    bond: int, precision: str, runs: int, width: int, sites: int, batch: int, *, classify: bool = False
) -> Record:
    """Our step as the training loop runs it: one graph."""
    x = features(batch, sites, width)
    labels = torch.randint(OUTPUTS, (batch,), generator=torch.Generator().manual_seed(5)).to(DEVICE)
    target = torch.eye(OUTPUTS, device=DEVICE)[labels].expand(runs, -1, -1).contiguous()

    def entropy(output: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return cross_entropy(output.flatten(0, 1), wanted.expand(runs, -1).flatten())

    def make() -> torch.nn.Module:
        return restt.ResTT(sites, width, bond, OUTPUTS, runs=runs, device=DEVICE)

    with restt.chain.backend("fused_cuda"), restt.chain.precision(precision):
        return _graphed_step(make, x, labels if classify else target, entropy if classify else mse_loss)


def eager_step(bond: int, sites: int, batch: int) -> Record:
    """The same chain by torch's own kernels, one graph too."""
    torch.backends.cuda.matmul.allow_tf32 = True
    target = torch.rand(batch, OUTPUTS, device=DEVICE)
    with restt.chain.backend("eager"):
        return _graphed_step(
            lambda: restt.ResTT(sites, 2, bond, OUTPUTS, device=DEVICE), features(batch, sites, 2), target, mse_loss
        )


def _graphed_step(make: Callable[[], torch.nn.Module], x: torch.Tensor, target: torch.Tensor, loss: Any) -> Record:
    """Forward, loss, backward, Adam; peak memory from before the module exists."""
    base = _fresh_memory()
    module = make()
    on_gpu = DEVICE == "cuda"
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-4, fused=on_gpu, capturable=on_gpu)
    if not on_gpu:

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            loss(module(x), target).backward()
            optimizer.step()

        return {"step_ms": milliseconds(step)}
    captured = GraphedStep(module, loss, optimizer, x, target)
    record = {
        "step_ms": milliseconds(lambda: captured(x, target)),
        "again_ms": milliseconds(lambda: captured(x, target)),
        "replay_ms": milliseconds(captured._graph.replay),
        "kernels_us": kernel_times(captured._graph.replay),
        "loss_finite": bool(captured(x, target).isfinite().all()),
    }
    return {**record, **_peak(base)}


def peer_step(peer: Contender, bond: int, sites: int, batch: int) -> Record:
    """A peer's step as its users run it, call by call."""
    torch.backends.cuda.matmul.allow_tf32 = True
    base = _fresh_memory()
    case = Case(sites=sites, bond_dim=bond, outputs=OUTPUTS, batch=batch, device=DEVICE)
    if (reason := peer.refusal(case)) is not None:
        return {"error": reason}
    work = peer.build(case, seed=0)
    record = {"step_ms": milliseconds(work.step, samples=3, repeats=3), "loss_finite": work.is_finite()}
    return {**record, **_peak(base)}


def inference(bond: int, precision: str, images: int, sites: int) -> Record:
    module = restt.ResTT(sites, 2, bond, OUTPUTS, device=DEVICE)
    x = features(images, sites, 2)
    with torch.no_grad(), restt.chain.backend("fused_cuda"), restt.chain.precision(precision):
        return {"ms": milliseconds(graphed(lambda: module(x)))}


def _fresh_memory() -> int:
    """Bytes in use before a measurement, whose peak starts here."""
    if DEVICE == "cpu":
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def _peak(base: int) -> Record:
    return {"peak_GiB": (torch.cuda.max_memory_allocated() - base) / 2**30} if DEVICE == "cuda" else {}
