"""TensorKrowch's MPSLayer, the fastest published tensor-train layer for PyTorch, as a plain chain of the same shape."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from restt_bench.case import Case
from restt_bench.implementations.base import Implementation, TrainingStep, Work
from restt_bench.parity import cotangent, output_and_gradients


class TensorKrowch(Implementation):
    """MPSLayer, set up as its tutorial says: memory modes, then one trace, then the optimizer.

    Its documented call multiplies the sites' matrices pairwise, B·r³ per site. ``inline=True`` is the other order it
    offers, site after site, which is the faster one on a CPU; both are timed, so that no speed-up rests on a slow
    setting. The layer has no residual chain: it computes a plain one and so does a little less work than ours.
    ``middle=True`` puts the outputs in the middle of the chain, as some networks have them, instead of at its end.
    """

    role = "baseline"

    def __init__(self, *, inline: bool = False, middle: bool = False) -> None:
        self.middle = middle
        self.options = {"inline_input": True, "inline_mats": True} if inline else {}
        self.name = "tensorkrowch-inline" if inline else "tensorkrowch"
        self.label = "TensorKrowch" + (", inline" if inline else "")

    def refusal(self, case: Case) -> str | None:
        if importlib.util.find_spec("tensorkrowch") is None:
            return "not installed (pip install 'restt[bench]')"
        if case.precision == "bf16":
            return "has no bf16 products of float32 weights"
        return "has no runs axis" if case.runs is not None else None

    def flags(self, case: Case) -> dict[str, Any]:
        version = importlib.metadata.version("tensorkrowch")
        modes = {"auto_stack": True, "auto_unbind": False, "traced": True}
        return {**super().flags(case), "package": f"tensorkrowch {version}", **modes, **self.options}

    def extra_bytes(self, case: Case) -> int:
        return 3 * case.batch * case.sites * case.bond_dim**2 * case.itemsize

    def build(self, case: Case, seed: int) -> Work:
        layer = self._layer(case, seed)
        return TrainingStep(lambda x: layer(x, **self.options), layer.parameters(), case, seed, _quiet)

    def found_and_expected(self, case: Case, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        layer = self._layer(case, seed)
        with _quiet():
            tensors = [tensor.detach().to("cpu", torch.float64) for tensor in layer.tensors]
        x, upstream = case.data(seed)[0], cotangent(case, seed)
        found = output_and_gradients(lambda x: layer(x, **self.options), {}, x, upstream, _quiet)
        expected = output_and_gradients(lambda x: _plain_chain(x, tensors), {}, x.to("cpu", torch.float64), upstream)
        return {name: (found[name], expected[name]) for name in expected}

    def _layer(self, case: Case, seed: int) -> Any:
        import tensorkrowch

        with torch.random.fork_rng(devices=[]), _quiet():
            torch.manual_seed(seed)
            layer = tensorkrowch.models.MPSLayer(
                n_features=case.sites + 1,  # the output node counts
                in_dim=case.feature_dim,
                out_dim=case.outputs,
                bond_dim=case.bond_dim,
                out_position=case.sites // 2 if self.middle else case.sites,
                init_method="randn_eye",
                std=1e-3,
                dtype=getattr(torch, case.dtype),
            ).to(case.device)
            layer.auto_stack = True
            layer.auto_unbind = False
            layer.trace(torch.zeros_like(case.data(seed)[0][:1]), **self.options)
        return layer


def _plain_chain(
    x: Tensor,  # (B, N, I)
    tensors: list[Tensor],  # (I, R), N-1 times (R, I, R), (R, O)
) -> Tensor:  # (B, O)
    y = x[:, 0] @ tensors[0]
    for n, tensor in enumerate(tensors[1:-1], start=1):
        y = torch.einsum("bk,bi,kil->bl", y, x[:, n], tensor)
    return y @ tensors[-1]


@contextmanager
def _quiet() -> Iterator[None]:
    # It indexes with lists, against which torch warns on every call.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
