"""Does an installed wheel run the C libraries that it brought? Exits 1 with what is compiled or missing instead.

    python tools/check_wheel.py

Run by cibuildwheel on every wheel, and by tools/release_check.py in an environment without a compiler.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import torch

import restt
from restt.chain.cpu import build, bundled


def main() -> int:
    problems = []
    for source, type_name in bundled.sources(Path(restt.__file__).parent):
        loaded = build._loaded(source, type_name)
        place = Path(loaded._name) if isinstance(loaded, ctypes.CDLL) else loaded
        if not (isinstance(place, Path) and place.parent == bundled.FOLDER):
            problems.append(f"{source.name} for {type_name}: {place}")
        else:
            print(f"check-wheel: {place.name}")
    torch.manual_seed(0)
    module, x = restt.ResTT(6, 3, 5, 2, dtype=torch.float64), torch.randn(7, 6, 3, dtype=torch.float64)
    outputs = []
    for backend in ("eager", "fused_cpu"):
        with torch.no_grad(), restt.chain.backend(backend):
            outputs.append(module(x))
    if not torch.allclose(*outputs, rtol=1e-10):
        problems.append("the compiled chain computes something else than torch")
    for problem in problems:
        print(f"check-wheel: {problem}", file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
