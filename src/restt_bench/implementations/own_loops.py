"""Loops of one's own in which torch's own Python, not the model, is what has to be made cheap.

A plain loop calls model, loss, backward and optimizer one by one. Whatever the model, each costs the host tens of
microseconds, and the backward pass wakes a thread of the engine, which leaves both threads' caches cold: around three
linear layers that takes 1.0 to 1.4 ms a step on the machine of the H200, where restt's captured step is done in 0.2
(``stack`` here: the loop without a model worth speaking of). So the loops here give torch less to do a step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from restt import chain
from restt._common.compat_torch import dynamo_config, mark_static_address
from restt_bench.case import Case
from restt_bench.implementations.base import (
    LEARNING_RATE,
    WARM_UPS,
    Implementation,
    TrainingStep,
    Work,
    captured,
)

LOOPS = {
    "plain": "model, loss, backward and fused Adam one by one",
    "graphed-step": "make_graphed_callables of model and loss, the update a graph, backward on the calling thread",
    "graphed-whole": "make_graphed_callables of the whole step, its update by torch.compile",
    "compiled-step": 'torch.compile, mode="reduce-overhead", of model, loss and backward, and of the update',
    "compiled-whole": 'torch.compile, mode="reduce-overhead", of the whole step, without its guards once it is warm',
}
ON_GPU_ONLY = ("graphed-step", "graphed-whole")
_COMPILED_UPDATE = ("graphed-whole", "compiled-step", "compiled-whole")


class OwnLoop(Implementation):
    """One of ``LOOPS`` around restt or, with ``stack``, around three linear layers of as many parameters.

    ``only_usual`` leaves it to one run of narrow sites in tf32: compiling for more takes longer than timing everybody.
    """

    def __init__(self, loop: str, *, stack: bool = False, only_usual: bool = False) -> None:
        self.loop, self.stack, self.only_usual = loop, stack, only_usual
        self.role = "limit" if stack else "ours"  # type: ignore[misc]
        self.name = f"{'stack' if stack else 'auto'}-{loop}"
        self.label = f"{'three linear layers' if stack else 'restt auto'}, {LOOPS[loop]}"

    def refusal(self, case: Case) -> str | None:
        """Why the case cannot be run, or None."""
        if self.loop in ("compiled-step", "compiled-whole") and not compiles_backward():
            return "torch.compile takes loss.backward() into its graph from torch 2.11 on"
        if self.only_usual and (case.runs is not None or case.feature_dim > 2 or case.precision != "tf32"):
            return "timed for one run of narrow sites in tf32"
        return "CUDA graphs need a GPU" if self.loop in ON_GPU_ONLY and not case.on_gpu else None

    def flags(self, case: Case) -> dict[str, Any]:
        """Settings behind the times, for results files."""
        form = "foreach" if self.loop in _COMPILED_UPDATE else "fused"
        return {"products": case.precision, "optimizer": f"torch.optim.Adam({form}=True)", "loop": LOOPS[self.loop]}

    def build(self, case: Case, seed: int) -> Work:
        """The untrained module."""
        return self._step(self._model(case, seed), case, seed)

    def _model(self, case: Case, seed: int) -> nn.Module:
        if not self.stack:
            return case.module(seed)
        width, hidden = case.sites * case.feature_dim, 32
        layers = (nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        return nn.Sequential(nn.Flatten(), *layers, nn.Linear(hidden, case.outputs)).to(case.device)

    def _step(self, model: nn.Module, case: Case, seed: int) -> TrainingStep:
        steps = {
            "plain": TrainingStep,
            "graphed-step": GraphedStep,
            "graphed-whole": GraphedWhole,
            "compiled-step": CompiledStep,
            "compiled-whole": CompiledWhole,
        }
        return steps[self.loop](model, model.parameters(), case, seed)

    def found_and_expected(self, case: Case, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Gradients and Adam's averages of them after one more step: a stale graph would show in either."""
        if self.stack:
            return {}
        module = case.module(seed)
        work = self._step(module, case, seed)
        work.step()
        exact = copy.deepcopy(module).to("cpu", torch.float64)
        exact.zero_grad(set_to_none=True)
        states = {name: work.optimizer.state[parameter] for name, parameter in module.named_parameters()}
        before = {name: state["exp_avg"].to("cpu", torch.float64) for name, state in states.items()}
        work.step()
        x, target = (tensor.to("cpu", torch.float64) for tensor in case.data(seed))
        with chain.backend("reference"):
            _loss(exact, x, target).backward()
        pairs = {}
        for (name, parameter), wanted in zip(module.named_parameters(), exact.parameters(), strict=True):
            assert wanted.grad is not None
            if parameter.grad is not None:  # a compiled step keeps none
                pairs[name] = parameter.grad.detach().clone(), wanted.grad
            pairs[f"{name}, averaged"] = states[name]["exp_avg"].clone(), 0.9 * before[name] + 0.1 * wanted.grad
        return pairs


def compiles_backward() -> bool:
    """Whether this torch can compile ``loss.backward()``."""
    return hasattr(dynamo_config(), "trace_autograd_ops")


def tracing_backward() -> AbstractContextManager[Any]:
    """Have ``torch.compile`` take ``loss.backward()`` into its graph, where this torch can."""
    return dynamo_config().patch(trace_autograd_ops=True) if compiles_backward() else nullcontext()


def _forget_gradients(optimizer: torch.optim.Optimizer) -> None:
    """As ``zero_grad`` does, which besides tells a profiler and takes 40 µs and more on the machine of the H200."""
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = None


def _loss(model: Callable[[Tensor], Tensor], x: Tensor, target: Tensor) -> Tensor:
    output = model(x)
    return torch.nn.functional.mse_loss(output, target.expand_as(output))


class _OneThread(TrainingStep):
    """The backward pass stays on the thread that asks for it."""

    def backward(self) -> None:
        _forget_gradients(self.optimizer)
        with torch.autograd.set_multithreading_enabled(False):
            self.loss.backward()


class _ModelAndLoss(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return _loss(self.model, x, target)


class GraphedStep(_OneThread):
    """Three graphs a step. Graphed gradients lie at the same place every step, so the update can be replayed too."""

    def __init__(self, model: nn.Module, parameters: Any, case: Case, seed: int) -> None:
        parameters = list(parameters)
        super().__init__(model, parameters, case, seed)
        self.optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=True, capturable=True)
        samples = (self.x.clone(), self.target.clone())
        self.loss_of: Any = torch.cuda.make_graphed_callables(_ModelAndLoss(model), samples)
        self.forward()
        self.backward()
        self.replay = captured(self.optimizer.step)

    def forward(self) -> None:
        """Outputs of every run."""
        self.loss = self.loss_of(self.x, self.target)

    def update(self) -> None:
        """Update of the weights."""
        self.replay()


def _compilable(parameters: list[nn.Parameter], case: Case) -> torch.optim.Adam:
    """Adam in a form that torch compiles. A rate in a tensor may change without anything being compiled again."""
    rate = torch.tensor(LEARNING_RATE, device=case.device) if case.on_gpu else LEARNING_RATE
    return torch.optim.Adam(parameters, lr=rate, foreach=True, capturable=case.on_gpu)


class GraphedWhole(TrainingStep):
    """Everything in one graphed callable; a compiled update keeps all processors busy, a fused few."""

    def __init__(self, model: nn.Module, parameters: Any, case: Case, seed: int) -> None:
        parameters = list(parameters)
        super().__init__(model, parameters, case, seed)
        self.optimizer = _compilable(parameters, case)
        update = torch.compile(self.optimizer.step)

        def step(x: Tensor, target: Tensor) -> Tensor:
            _forget_gradients(self.optimizer)
            loss = _loss(model, x, target)
            loss.backward()
            update()
            return loss.detach()

        samples = (self.x.clone(), self.target.clone())
        self.whole: Callable[..., Any] = torch.cuda.make_graphed_callables(step, samples)
        for _ in range(WARM_UPS + 2):
            self.step()

    def step(self) -> None:
        """Replay the graph on the batch."""
        self.loss = self.whole(self.x, self.target)


class CompiledStep(TrainingStep):
    """Model, loss and backward as one compiled function, the update as another."""

    def __init__(self, model: nn.Module, parameters: Any, case: Case, seed: int) -> None:
        parameters = list(parameters)
        super().__init__(model, parameters, case, seed)
        self.optimizer = _compilable(parameters, case)
        mode = "reduce-overhead" if case.on_gpu else None

        def loss_and_gradients(x: Tensor, target: Tensor) -> Tensor:
            loss = _loss(model, x, target)
            loss.backward()
            return loss.detach()

        self.loss_and_gradients = torch.compile(loss_and_gradients, mode=mode)
        self.update = torch.compile(self.optimizer.step, mode=mode)  # type: ignore[method-assign]
        with tracing_backward():
            for _ in range(WARM_UPS):
                self.step()

    def step(self) -> None:
        """One training step."""
        torch.compiler.cudagraph_mark_step_begin()
        _forget_gradients(self.optimizer)
        self.loss = self.loss_and_gradients(self.x, self.target)
        self.update()

    def is_finite(self) -> bool:
        """Of a step of its own: a graph's output is gone when another graph has run."""
        self.step()
        return super().is_finite()


class CompiledWhole(TrainingStep):
    """One compiled function, so one graph. ``optimizer.step`` breaks a graph, torch's function behind it does not."""

    def __init__(self, model: nn.Module, parameters: Any, case: Case, seed: int) -> None:
        parameters = list(parameters)
        super().__init__(model, parameters, case, seed)
        self.parameters = parameters
        rate = torch.tensor(LEARNING_RATE, device=case.device)
        first, second = ([torch.zeros_like(parameter) for parameter in parameters] for _ in range(2))
        steps = [torch.zeros((), device=case.device) for _ in parameters]
        for parameter, average, square, count in zip(parameters, first, second, steps, strict=True):
            self.optimizer.state[parameter] = {"exp_avg": average, "exp_avg_sq": square, "step": count}
        for tensor in (*parameters, *first, *second, *steps, rate):
            mark_static_address(tensor)  # a graph may write to what stays where it is

        def step(x: Tensor, target: Tensor) -> Tensor:
            loss = _loss(model, x, target)
            gradients = list(torch.autograd.grad(loss, parameters))
            with torch.no_grad():
                adam(
                    parameters,
                    gradients,
                    first,
                    second,
                    [],
                    steps,
                    foreach=True,
                    capturable=True,
                    amsgrad=False,
                    beta1=0.9,
                    beta2=0.999,
                    lr=rate,
                    weight_decay=0.0,
                    eps=1e-8,
                    maximize=False,
                )
            return loss.detach()

        self.whole = torch.compile(step, mode="reduce-overhead" if case.on_gpu else None, fullgraph=True)
        with tracing_backward():
            for _ in range(WARM_UPS):
                self.loss = self.whole(self.x, self.target)

    def step(self) -> None:
        """One training step."""
        with torch.compiler.set_stance("default", skip_guard_eval_unsafe=True):
            torch.compiler.cudagraph_mark_step_begin()
            self.loss = self.whole(self.x, self.target)

    def is_finite(self) -> bool:
        """Whether all trained parameters are finite.

        The loss is not asked: it is gone when another graph has run, and without guards every step must be taken in the
        precision of the first.
        """
        return all(bool(parameter.isfinite().all()) for parameter in self.parameters)
