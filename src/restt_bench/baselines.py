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
from restt_bench.implementation import Implementation, TrainingStep, Work
from restt_bench.parity import cotangent, output_and_gradients, reference_gradients

# How a site joins state and features: A(n) of every sample first, as the paper's authors' public code does, or x ⊗ y
# first and then one product.
FORMS = {"textbook": "textbook PyTorch", "torch": "plain PyTorch, one GEMM a site"}
STACKED = ("chain", "linear")  # weights of restt.ResTT that hold all inner sites


class TorchResTT(nn.Module):
    """Algorithm 1 in ordinary autograd, with one parameter per tensor of the paper, from the weights of a module.

    ``"textbook"``: each site contracts its core with the features first, A(n) = Σ_i x(n,i) W(n,1)_i of shape (B, R, R),
    and then the state with A(n): simple, and B·N·R² numbers are stored for the backward. It stands for the way such
    models are usually coded. ``"torch"``: the state is multiplied by the features, (B, I·R), and then by the core: the
    quickest way we know without a kernel or a backward of one's own. Residual chains without a runs axis.

    >>> import restt
    >>> module = restt.ResTT(sites=5, feature_dim=2, bond_dim=3, outputs=2)
    >>> x = torch.rand(4, 5, 2)
    >>> [torch.allclose(TorchResTT(module, form)(x), module(x), atol=1e-6) for form in FORMS]
    [True, True]
    """

    def __init__(self, module: ResTT, form: str = "textbook") -> None:
        super().__init__()
        self.form = check_choice("form", form, FORMS)
        if module.topology.name != "residual" or module.runs is not None or module.sites < 3:
            raise ValueError(f"expected a residual module of at least 3 sites without runs, got {module}")
        self.tensors = {
            name: [nn.Parameter(tensor.detach().clone()) for tensor in (weight if name in STACKED else [weight])]
            for name, weight in module.named_parameters()
        }
        self.registered = nn.ParameterList(tensor for tensors in self.tensors.values() for tensor in tensors)

    def forward(
        self,
        x: Tensor,  # (B, N, I)
    ) -> Tensor:  # (B, O)
        """Outputs of every row."""
        tensors = self.tensors
        join = self._joined if self.form == "torch" else self._joined_textbook
        y = x[:, 0] @ tensors["first"][0]
        for n, (core, entry) in enumerate(zip(tensors["chain"], tensors["linear"], strict=True), start=1):
            y = join(y, y, x[:, n], core, entry)
        return join(y, y @ tensors["last_skip"][0], x[:, -1], tensors["last_chain"][0], tensors["last_linear"][0])

    @staticmethod
    def _joined(
        y: Tensor,  # (B, R)
        skipped: Tensor,  # (B, R) or (B, O)
        x: Tensor,  # (B, I)
        core: Tensor,  # (I, R, R) or (I, R, O)
        entry: Tensor,  # (I, R) or (I, O)
    ) -> Tensor:  # (B, R) or (B, O)
        product = (x.unsqueeze(2) * y.unsqueeze(1)).flatten(1)
        return torch.addmm(torch.addmm(skipped, x, entry), product, core.flatten(0, 1))

    @staticmethod
    def _joined_textbook(y: Tensor, skipped: Tensor, x: Tensor, core: Tensor, entry: Tensor) -> Tensor:
        return torch.bmm(y.unsqueeze(1), torch.einsum("bi,ikl->bkl", x, core)).squeeze(1) + skipped + x @ entry

    def stacked_gradients(self) -> dict[str, Tensor]:
        """The parameters' gradients under the names and in the shapes of :class:`restt.ResTT`."""
        gradients = {}
        for name, tensors in self.tensors.items():
            own = [tensor.grad for tensor in tensors if tensor.grad is not None]
            gradients[name] = torch.stack(own) if name in STACKED else own[0]
        return gradients


class PlainTorch(Implementation):
    """:class:`TorchResTT` as its users run it, call by call, or as one CUDA graph."""

    role = "baseline"

    def __init__(self, form: str = "textbook", *, graph: bool = False) -> None:
        self.form, self.graph = form, graph
        self.named(form, FORMS[form])

    def refusal(self, case: Case) -> str | None:
        """Why the case cannot be run, or None."""
        if case.runs is not None:
            return "has no runs axis"
        if case.precision == "bf16":
            return "has no bf16 products of float32 weights"
        return "needs at least 3 sites" if case.sites < 3 else super().refusal(case)

    def extra_bytes(self, case: Case) -> int:
        """Memory of a step beyond the states, about."""
        width = case.bond_dim if self.form == "textbook" else case.feature_dim
        return 2 * case.batch * case.sites * case.bond_dim * width * case.itemsize

    def build(self, case: Case, seed: int) -> Work:
        """A training step of the untrained module."""
        model = TorchResTT(case.module(seed), self.form)
        return TrainingStep(model, model.parameters(), case, seed, graph=self.graph)

    def compared(self, case: Case, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Output and gradients beside the reference's."""
        module = case.module(seed)
        model = TorchResTT(module, self.form)
        computed = output_and_gradients(model, {}, case.data(seed)[0], cotangent(case, seed))
        computed |= model.stacked_gradients()
        expected = reference_gradients(module, case, seed)
        return {name: (computed[name], expected[name]) for name in expected}


class TensorKrowch(Implementation):
    """MPSLayer, set up as its tutorial says: memory modes, then one trace, then the optimizer.

    Its documented call multiplies the sites' matrices pairwise, B·r³ per site. ``inline=True`` is the other order it
    offers, site after site, which is the faster one on a CPU; both are timed, so that no speed-up rests on a slow
    setting. The layer has no residual chain: it computes a plain one and so does a little less work than ours.
    """

    role = "baseline"

    def __init__(self, *, inline: bool = False) -> None:
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
        """A training step of the traced layer."""
        layer = self._layer(case, seed)
        return TrainingStep(lambda x: layer(x, **self.options), layer.parameters(), case, seed, _quiet)

    def compared(self, case: Case, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Output and gradient of the features beside those of a plain chain with the layer's tensors."""
        layer = self._layer(case, seed)
        with _quiet():
            tensors = [tensor.detach().to("cpu", torch.float64) for tensor in layer.tensors]
        x, upstream = case.data(seed)[0], cotangent(case, seed)
        computed = output_and_gradients(lambda x: layer(x, **self.options), {}, x, upstream, _quiet)
        expected = output_and_gradients(lambda x: _plain_chain(x, tensors), {}, x.to("cpu", torch.float64), upstream)
        return {name: (computed[name], expected[name]) for name in expected}

    def _layer(self, case: Case, seed: int) -> Any:
        import tensorkrowch

        with torch.random.fork_rng(devices=[]), _quiet():
            torch.manual_seed(seed)
            layer = tensorkrowch.models.MPSLayer(
                n_features=case.sites + 1,  # the output node counts
                in_dim=case.feature_dim,
                out_dim=case.outputs,
                bond_dim=case.bond_dim,
                out_position=case.sites,
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
