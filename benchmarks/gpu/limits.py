"""What the machine allows: measured matrix rates and copy bandwidth, and the time they bound a training step by."""

from __future__ import annotations

import torch

from gpu.measure import DEVICE, Record, milliseconds


def ceilings(size: int) -> Record:
    """Measured matrix rates (per second) and copy bandwidth (bytes read plus written per second)."""
    found: Record = {}
    torch.backends.cuda.matmul.allow_tf32 = True
    for name, dtype in (("tf32", torch.float32), ("bf16", torch.bfloat16)):
        found[f"{name}_flops"] = 2 * size**3 / (1e-3 * _product_ms(size, dtype))
    source = torch.randn(size, size, 8, device=DEVICE)
    target = torch.empty_like(source)
    seconds = 1e-3 * milliseconds(lambda: target.copy_(source), samples=5, repeats=5)
    found["copy_bytes"] = 2 * source.nbytes / seconds
    return found


def _product_ms(size: int, dtype: torch.dtype) -> float:
    a, b = (torch.randn(size, size, device=DEVICE, dtype=dtype) for _ in range(2))
    return milliseconds(lambda: a @ b, samples=5, repeats=5)


def limit_ms(found: Record, bond: int, precision: str, runs: int, width: int, sites: int, batch: int) -> float:
    """The larger of the products' arithmetic and the bytes that must move: features, and six times the parameters."""
    flops = 3 * 2 * runs * batch * (sites - 2) * width * bond**2
    parameters = runs * (sites - 2) * width * (bond**2 + bond)
    bytes_moved = 4 * (6 * parameters + batch * sites * width)
    rate = found["bf16_flops" if precision == "bf16" else "tf32_flops"]
    return 1e3 * max(flops / rate, bytes_moved / found["copy_bytes"])
