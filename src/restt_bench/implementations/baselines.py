"""Baselines: ResTT in ordinary PyTorch and autograd, and TensorKrowch's MPSLayer, the fastest published TT layer."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from restt._common.errors import check_choice
from restt.module import ResTT
from restt_bench.case import Case
from restt_bench.implementations.base import Implementation, TrainingStep, Work, graph_name, graph_refusal
from restt_bench.parity import cotangent, output_and_gradients, reference_gradients

# How a site joins state and features: A(n) of every sample first, as the paper's authors' public code does, or x ⊗ y
# first and then one product.
FORMS = {"textbook": "textbook PyTorch", "torch": "plain PyTorch, one GEMM a site"}


class TorchResTT(nn.Module):
    """Algorithm 1 in ordinary autograd, with one parameter per tensor of the paper, from the weights of a module.

    ``"textbook"``: each site contracts its core with the features first, A(n) = Σ_i x(n,i) W(n,1)_i of shape (B, R, R),
    and then the state with A(n): simple, and B·N·R² numbers are kept for the backward. It stands for the way such
    models are usually coded. ``"torch"``: the state is multiplied by the features, (B, I·R), and then by the core: the
    quickest way we know without a kernel or a backward of one's own. ``residual`` and ``plain`` chains, no runs axis.

    >>> import restt
    >>> module = restt.ResTT(sites=5, feature_dim=2, bond_dim=3, outputs=2)
    >>> x = torch.rand(4, 5, 2)
    >>> [torch.allclose(TorchResTT(module, form)(x), module(x), atol=1e-6) for form in FORMS]
    [True, True]
    """

    def __init__(self, module: ResTT, form: str = "textbook") -> None:
        super().__init__()
        self.form = check_choice("form", form, FORMS)
        if module.topology.name not in ("residual", "plain") or module.runs is not None or module.sites < 3:
            raise ValueError(f"expected a residual or plain module of at least 3 sites without runs, got {module}")
        self.residual = module.topology.name == "residual"
        self.first = _copied(module.first)
        self.cores = nn.ParameterList(_copied(core) for core in _present(module.chain))
        self.last_core = _copied(_present(module.last_chain))
        if self.residual:
            self.entries = nn.ParameterList(_copied(entry) for entry in _present(module.linear))
            self.last_entry = _copied(_present(module.last_linear))
            self.last_skip = _copied(_present(module.last_skip))

    def forward(
        self,
        x: Tensor,  # (B, N, I)
    ) -> Tensor:  # (B, O)
        """Outputs of every run."""
        y = x[:, 0] @ self.first
        for n, core in enumerate(self.cores, start=1):
            y = self._joined(y, x[:, n], core, self.entries[n - 1] if self.residual else None, None)
        entry, skip = (self.last_entry, self.last_skip) if self.residual else (None, None)
        return self._joined(y, x[:, -1], self.last_core, entry, skip)

    def _joined(
        self,
        y: Tensor,  # (B, R)
        x: Tensor,  # (B, I)
        core: Tensor,  # (I, R, R) or (I, R, O)
        entry: Tensor | None,  # (I, R) or (I, O)
        skip: Tensor | None,  # (R, O)
    ) -> Tensor:  # (B, R) or (B, O)
        if self.form == "torch":
            product = (x.unsqueeze(2) * y.unsqueeze(1)).flatten(1)
            if entry is None:
                return product @ core.flatten(0, 1)
            return torch.addmm(torch.addmm(y if skip is None else y @ skip, x, entry), product, core.flatten(0, 1))
        matrix = torch.einsum("bi,ikl->bkl", x, core)
        joined = torch.bmm(y.unsqueeze(1), matrix).squeeze(1)
        if entry is not None:
            joined = joined + (y if skip is None else y @ skip) + x @ entry
        return joined

    def stacked_gradients(self) -> dict[str, Tensor]:
        """The parameters' gradients under the names and in the shapes of :class:`restt.ResTT`."""
        found = {"first": _gradient(self.first), "last_chain": _gradient(self.last_core)}
        found["chain"] = torch.stack([_gradient(core) for core in self.cores])
        if self.residual:
            found["linear"] = torch.stack([_gradient(entry) for entry in self.entries])
            found |= {"last_linear": _gradient(self.last_entry), "last_skip": _gradient(self.last_skip)}
        return found


class PlainTorch(Implementation):
    """:class:`TorchResTT` as its users run it, call by call, or as one CUDA graph."""

    role = "baseline"

    def __init__(self, form: str = "textbook", *, graph: bool = False) -> None:
        self.form, self.graph = form, graph
        self.name, self.label = graph_name(form, FORMS[form], graph)

    def refusal(self, case: Case) -> str | None:
        """Why the case cannot be run, or None."""
        if case.runs is not None:
            return "has no runs axis"
        if case.precision == "bf16":
            return "has no bf16 products of float32 weights"
        if case.topology not in ("residual", "plain"):
            return f"has no {case.topology} chain"
        return "needs at least 3 sites" if case.sites < 3 else graph_refusal(self, case)

    def extra_bytes(self, case: Case) -> int:
        """Memory of a step beyond the states, about."""
        width = case.bond_dim if self.form == "textbook" else case.feature_dim
        return 2 * case.batch * case.sites * case.bond_dim * width * case.itemsize

    def build(self, case: Case, seed: int) -> Work:
        """The untrained module."""
        model = TorchResTT(case.module(seed), self.form)
        return TrainingStep(model, model.parameters(), case, seed, graph=self.graph)

    def found_and_expected(self, case: Case, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Own numbers beside the reference's."""
        module = case.module(seed)
        model = TorchResTT(module, self.form)
        found = output_and_gradients(model, {}, case.data(seed)[0], cotangent(case, seed))
        found |= model.stacked_gradients()
        expected = reference_gradients(module, case, seed)
        return {name: (found[name], expected[name]) for name in expected}


def _copied(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor.detach().clone())


def _present(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


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
        """Why the case cannot be run, or None."""
        if importlib.util.find_spec("tensorkrowch") is None:
            return "not installed (pip install 'restt[bench]')"
        if case.precision == "bf16":
            return "has no bf16 products of float32 weights"
        return "has no runs axis" if case.runs is not None else None

    def flags(self, case: Case) -> dict[str, Any]:
        """Settings behind the times, for results files."""
        version = importlib.metadata.version("tensorkrowch")
        modes = {"auto_stack": True, "auto_unbind": False, "traced": True}
        return {**super().flags(case), "package": f"tensorkrowch {version}", **modes, **self.options}

    def extra_bytes(self, case: Case) -> int:
        """Memory of a step beyond the states, about."""
        return 3 * case.batch * case.sites * case.bond_dim**2 * case.itemsize

    def build(self, case: Case, seed: int) -> Work:
        """The untrained module."""
        layer = self._layer(case, seed)
        return TrainingStep(lambda x: layer(x, **self.options), layer.parameters(), case, seed, _quiet)

    def found_and_expected(self, case: Case, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Own numbers beside the reference's."""
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
