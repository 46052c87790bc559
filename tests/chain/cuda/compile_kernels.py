"""Compiles every GPU kernel for Hopper, which needs no GPU: what the interpreter forgives, the compiler may not.

Run as a program of its own, since kernels are either compiled or interpreted in one process. Prints what went wrong.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from restt.chain.cuda import backward, forward, gradients
from restt.chain.cuda.launch import Layout, head_launch, site_launch, sweep_launch, weight_launch
from restt.train import adam_kernel

HOPPER = GPUTarget("cuda", 90, 32)
SHARED_BYTES = 227 * 1024
IN_FLIGHT = re.compile(r"warp_group_dot_wait.*pendings = [1-9]")
# A whole chain of equal widths, as the kernels' own defaults have it.
WHOLE = {
    "p_start": None, "p_table": None, "p_left": None, "length": 0, "every": 1, "steps": 0, "first_width": 0,
    "last_width": 0, "per_run": 0, "START": True, "HEAD": True, "REPLAY": False, "RAGGED": False, "FOLDED": False,
}  # fmt: skip
STRETCH = {"p_start": ..., "p_left": ..., "length": ..., "START": False, "HEAD": False}
RAGGED = {"p_table": ..., "steps": ..., "first_width": ..., "last_width": ..., "per_run": ..., "RAGGED": True}
FLAGS = {"HAS_CHAIN": True, "HAS_LINEAR": True, "ENDS_WITH_SKIP": True, "LAST_CHAIN": True, "LAST_SKIP": True, "OT": 16}


def compile_kernel(kernel: Any, warps: int, **constants: Any) -> str | None:
    """What is wrong with the kernel, or None. Pointers are float32 unless ``types`` says otherwise."""
    types = constants.pop("types", {})
    constants = {name: value for name, value in {**WHOLE, **constants}.items() if name in kernel.arg_names}
    constants = {name: value for name, value in constants.items() if value is not ...}  # an argument of the launch
    constants |= {name: 1 for name in ("runs", "stride_xi") if name in kernel.arg_names}
    signature, fixed, hints = {}, {}, {}
    for index, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
            fixed[index,] = constants[name]
        else:
            pointer = {"p_flags": "*i32", "p_table": "*i32"}.get(name, "*fp32")
            signature[name] = types.get(name, pointer if name.startswith("p_") else "i32")
            several = isinstance(signature[name], tuple)
            kind, count = (signature[name][0], len(signature[name])) if several else (signature[name], 1)
            if kind.startswith("*") or name == "columns":
                hints |= {(index, place) if several else (index,): [["tt.divisibility", 16]] for place in range(count)}
    source = ASTSource(kernel, signature, constexprs=fixed, attrs=hints)
    try:
        compiled = triton.compile(source, target=HOPPER, options={"num_warps": warps, "num_stages": 1})
    except Exception as error:
        return f"{kernel.__name__} {constants}: {str(error)[-500:]}"
    if compiled.metadata.shared > SHARED_BYTES:
        return f"{kernel.__name__} {constants}: {compiled.metadata.shared} bytes of shared memory"
    # Triton 3.6 lets such products read operands that the next loop step's copies already overwrite.
    if IN_FLIGHT.search(compiled.asm["ttgir"]):
        return f"{kernel.__name__} {constants}: a product is still in flight at the end of its loop step"
    return None


def sweeps(
    bond: int,
    precision: str,
    width: int = 2,
    runs: int = 1,
    *,
    mixed: bool = False,
    want_x: bool = False,
    part_of: dict[str, Any] | None = None,
):
    """Both narrow sweeps as the launcher would start them for a batch of 512."""
    layout, part_of = Layout(bond, precision), part_of or {}
    folded = bond < layout.tile and precision == "tf32" and not mixed and "RAGGED" not in part_of
    for kernel, options in (
        (forward.forward_sweep, {"SAVE": True, "LAST_LINEAR": True, "FOLDED": folded, **part_of}),
        (backward.backward_sweep, {"WANT_X": want_x, **part_of}),
    ):
        ld = layout.forward_ld(options.get("FOLDED", False))
        step = 1 if "RAGGED" in part_of else width
        launch = sweep_launch(layout, step, runs, 512, reads_states=options.get("WANT_X", False))
        element = "bf16" if precision == "bf16" else "fp32"
        core = f"tensordesc<{element}[1,{layout.tile},{layout.tile}]>" if launch.tma else f"*{element}"
        yield compile_kernel(
            kernel, launch.warps, types={"p_core": core}, I=width, BOND=bond, R=layout.tile,
            LD=ld, BN=launch.columns, PART=launch.part, STAGES=launch.stages, PRECISION=precision,
            TMA=launch.tma, MIXED=mixed, SKIP="none" if mixed else "full", HAS_OUTPUT_SKIP=mixed, **FLAGS, **options,
        )  # fmt: skip


def others(bond: int, precision: str, part_of: dict[str, Any] | None = None):
    """The kernels around the sweeps, and the wide sweeps."""
    part_of = part_of or {}
    layout, launch = Layout(bond, precision), weight_launch(Layout(bond, precision))
    yield compile_kernel(
        gradients.weight_gradients, launch.warps, I=2, BOND=bond, K=launch.rows, L=launch.columns,
        BB=launch.batch, STAGES=launch.stages, PRECISION=precision, CORE=True, ENTRY=3, **part_of,
    )  # fmt: skip
    if (together := site_launch(layout, 8, 12, 120)) is not None and not part_of:
        yield compile_kernel(
            gradients.site_gradients, together.warps, I=8, BOND=bond, R=layout.tile, PART=together.features,
            BB=together.batch, STAGES=together.stages, PRECISION=precision, CORE=True, ENTRY=3,
        )  # fmt: skip
    for at_once, warps in {head_launch(layout, 1), head_launch(layout, 10_000)}:
        yield compile_kernel(
            gradients.head_gradients, warps, I=2, BOND=bond, K=layout.tile, OT=16, BB=at_once, PRECISION=precision,
            CHAIN_HEAD=True, LINEAR_HEAD=True, SKIP_HEAD=True,
        )  # fmt: skip
    folded = not part_of and not layout.is_wide
    yield compile_kernel(
        gradients.pack_cores, 4, BOND=bond, LD=layout.ld, FORWARD_LD=layout.forward_ld(folded), T=32, BACKWARD=True,
        FOLDED=folded, **part_of,
    )  # fmt: skip
    if layout.is_wide:
        wide = sweep_launch(layout, 2, 1, 512)
        shared = {"I": 2, "BOND": bond, "LD": layout.ld, "T": layout.tile, "BN": wide.columns, "STAGES": wide.stages}
        shared |= {"PRECISION": precision, "HAS_OUTPUT_SKIP": True, **FLAGS}
        yield compile_kernel(forward.forward_sweep_wide, wide.warps, LAST_LINEAR=True, **shared, **part_of)
        yield compile_kernel(backward.backward_sweep_wide, wide.warps, WANT_X=True, p_left=..., **shared, **part_of)


def updates(element: str):
    """The optimizer's kernel, of seven tensors."""
    held = dict.fromkeys(("p_weights", "p_gradients", "p_first", "p_second"), (f"*{element}",) * 7)
    types = {**held, "sizes": ("i32",) * 7, "p_norms": "*fp64", "p_decay": "*fp64"}
    for decoupled in (False, True):
        constants = {**adam_kernel.Update((0.9, 0.999), 1e-8, decoupled).constants, "TENSORS": 7, "ALIGNED": True}
        yield compile_kernel(adam_kernel.update_tensors, constants.pop("num_warps"), types=types, **constants)


def main() -> int:
    thorough = "--thorough" in sys.argv
    wrong = [
        *sweeps(100, "float32"),
        *others(100, "float32"),
        *sweeps(100, "tf32"),
        *sweeps(20, "bf16", mixed=True, want_x=True),
        *sweeps(10, "float32", 8, 120),
        *others(10, "float32"),
        *others(20, "tf32"),
        *others(200, "tf32"),
        *sweeps(20, "tf32"),
        *sweeps(50, "tf32", part_of=STRETCH),
        *sweeps(50, "float32", part_of={**STRETCH, "every": ..., "REPLAY": True}),
        *sweeps(50, "tf32", 1000, part_of=RAGGED),
        *others(50, "tf32", part_of=RAGGED),
        *updates("fp32"),
        *updates("fp64"),
    ]
    if thorough:
        for bond in (1, 20, 50, 100, 128):
            for precision in ("tf32", "bf16", "float32"):
                for runs, width in ((1, 2), (10, 2), (1, 8), (10, 16)):
                    wrong += sweeps(bond, precision, width, runs)
                wrong += sweeps(bond, precision, mixed=True, want_x=True)
                wrong += sweeps(bond, precision, 40, mixed=True, want_x=True, part_of=RAGGED)
                wrong += sweeps(bond, precision, mixed=True, want_x=True, part_of=STRETCH)
                wrong += others(bond, precision)
        wrong += [
            *others(256, "float32"),
            *others(256, "bf16"),
            *others(256, "tf32", {"p_start": ..., "START": False, "HEAD": False}),
        ]
    wrong = [message for message in wrong if message is not None]
    print("\n".join(wrong))
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
