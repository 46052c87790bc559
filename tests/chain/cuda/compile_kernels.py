"""Compiles every GPU kernel for Hopper, which needs no GPU: what the interpreter forgives, the compiler may not.

Run as a program of its own, since kernels are either compiled or interpreted in one process. Prints what went wrong.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from restt import Topology
from restt.chain.cuda.calls import KernelCall
from restt.chain.cuda.plans import Sizes, backward_plan, core_block, forward_plan
from restt.train import adam_kernel

HOPPER = GPUTarget("cuda", 90, 32)
SHARED_BYTES = 227 * 1024
IN_FLIGHT = re.compile(r"warp_group_dot_wait.*pendings = [1-9]")
MIXED = Topology.residual(9).skip_to_output(2, 5, 6).without_chain(4).without_linear(3, 7).without_skip(8)


def compiled(call: KernelCall, types: dict[str, Any]) -> Any:
    """The kernel of a launch; pointers are float32 unless ``types`` says otherwise."""
    kernel = call.kernel
    options = {name: call.constants[name] for name in ("num_warps", "num_stages")}
    names = [name for name in kernel.arg_names if name not in call.constants]
    numbers = dict(zip(names[len(names) - len(call.numbers) :], call.numbers, strict=True))
    unspecialised = {parameter.name for parameter in kernel.params if parameter.do_not_specialize}
    signature, fixed, hints = {}, {}, {}
    for index, name in enumerate(kernel.arg_names):
        aligned = [["tt.divisibility", 16]]
        if name in call.constants:
            signature[name], fixed[index,] = "constexpr", call.constants[name]
        elif name in types:
            signature[name] = types[name]
            if isinstance(types[name], tuple) and name.startswith("p_"):
                hints |= {(index, place): aligned for place in range(len(types[name]))}
            elif isinstance(types[name], str) and types[name].startswith("*"):
                hints[index,] = aligned
        elif name in numbers:
            signature[name] = "i32"
            if name not in unspecialised and numbers[name] == 1:
                signature[name], fixed[index,] = "constexpr", 1
            elif name not in unspecialised and numbers[name] % 16 == 0:
                hints[index,] = aligned
        else:
            signature[name] = {"p_flags": "*i32", "p_table": "*i32"}.get(name, "*fp32")
            hints[index,] = aligned
    return triton.compile(ASTSource(kernel, signature, constexprs=fixed, attrs=hints), target=HOPPER, options=options)


def problem(call: KernelCall | None, **types: Any) -> str | None:
    """What is wrong with the kernel of a launch, or None."""
    if call is None:
        return None
    name = f"{call.kernel.__name__} {call.constants}"
    try:
        made = compiled(call, types)
    except Exception as error:
        return f"{name}: {str(error)[-500:]}"
    if made.metadata.shared > SHARED_BYTES:
        return f"{name}: {made.metadata.shared} bytes of shared memory"
    # Triton 3.6 lets such products read operands that the next loop step's copies already overwrite.
    if IN_FLIGHT.search(made.asm["ttgir"]):
        return f"{name}: a product is still in flight at the end of its loop step"
    return None


def sizes(
    bond: int, precision: str, width: int = 2, runs: int = 1, *, mixed: bool = False, packed: bool = False
) -> Sizes:
    """A chain of nine sites on 512 samples."""
    topology = MIXED if mixed else Topology.residual(9)
    widths = (1, 3, 2, width, 1, 4, 2, 2, 3) if packed else ()
    shape = (512, sum(widths)) if packed else (512, 9, width)
    strides = (sum(widths), 1) if packed else (9 * width, width, 1)
    first = (runs, max(widths, default=width), bond)
    return Sizes(shape, strides, first, 10, topology.connections, widths, precision, torch.device("cpu"))


def problems(given: Sizes, *, want_x: bool = False) -> Iterator[str | None]:
    """The kernels of a forward and a backward pass."""
    forward, backward = forward_plan(given, True), backward_plan(given, (want_x, *[True] * 6))
    element = "bf16" if given.precision == "bf16" else "fp32"
    yield problem(forward.pack, p_forward=f"*{element}", p_backward=f"*{element}")
    for plan in (forward, backward):
        block = ",".join(map(str, core_block(plan.sweep)))
        yield problem(plan.sweep, p_core=f"tensordesc<{element}[{block}]>" if plan.tma else f"*{element}")
    yield problem(backward.weights)
    yield problem(backward.head)


def updates(element: str) -> Iterator[str | None]:
    """The optimizer's kernel, of eight tensors."""
    held = dict.fromkeys(("p_weights", "p_gradients", "p_first", "p_second"), (f"*{element}",) * 8)
    types = {**held, "sizes": ("i32",) * 8, "p_norms": "*fp64", "p_decay": "*fp64"}
    for decoupled in (False, True):
        constants = {**adam_kernel.Update((0.9, 0.999), 1e-8, decoupled).constants, "TENSORS": 8, "ALIGNED": True}
        call = KernelCall(adam_kernel.update_tensors, (1,), ((4,) * 8, 0), {**constants, "num_stages": 1})
        yield problem(call, **types)


def main() -> int:
    wrong = [
        *problems(sizes(100, "float32")),
        *problems(sizes(100, "tf32")),
        *problems(sizes(20, "bf16", mixed=True), want_x=True),
        *problems(sizes(20, "tf32")),
        *problems(sizes(50, "tf32", 1000, packed=True)),
        *updates("fp32"),
    ]
    if "--thorough" in sys.argv:
        wrong += updates("fp64")
        for bond in (1, 20, 50, 100, 128):
            for precision in ("tf32", "bf16", "float32"):
                for runs, width in ((1, 2), (10, 2), (1, 8), (10, 16)):
                    wrong += problems(sizes(bond, precision, width, runs))
                wrong += problems(sizes(bond, precision, mixed=True), want_x=True)
                wrong += problems(sizes(bond, precision, 40, mixed=True, packed=True), want_x=True)
    wrong = [message for message in wrong if message is not None]
    print("\n".join(wrong))
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
