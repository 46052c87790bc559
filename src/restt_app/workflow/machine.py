"""What restt finds on this machine: versions, devices, which backend contracts chains and why, folders, data."""

from __future__ import annotations

import importlib.util
from typing import Any

# Extra -> the packages it brings, by the names they are imported under.
EXTRAS = {
    "fast": ("ziglang",),
    "plot": ("matplotlib",),
    "app": ("typer", "rich", "pandas", "pyarrow", "jinja2", "matplotlib"),
    "serve": ("fastapi", "pydantic", "uvicorn"),
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "tune": ("optuna",),
    "baselines": ("interpret",),
}


def info() -> dict[str, Any]:
    """Versions, devices with their backend and why, threads, folders, data sets and extras, as plain JSON.

    >>> sorted(info())
    ['cache', 'commit', 'data', 'devices', 'extras', 'folders', 'platform', 'threads', 'versions']
    """
    import torch

    from restt import ResTT, chain, data
    from restt._common.devices import available_memory, gibibytes
    from restt._common.files import user_cache
    from restt._common.provenance import describe_device, provenance
    from restt.data.loading import search_folders

    def device(name: str) -> str:
        words = "Apple GPU" if name == "mps" else describe_device(name)
        dtype = torch.float64 if name == "cpu" else torch.float32
        module = ResTT(20, 9, 20, 1, dtype=dtype, device=name)
        chains = chain.explain(module, torch.zeros(1, 20, 9, dtype=dtype, device=name))
        return f"{words}, {gibibytes(available_memory(torch.device(name)))} free\n{chains}"

    def extra(name: str) -> str:
        lacking = [package for package in EXTRAS[name] if importlib.util.find_spec(package) is None]
        return f"lacks {', '.join(lacking)}: pip install 'restt[{name}]'" if lacking else "installed"

    origin = provenance()
    devices = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return {
        "versions": origin["versions"],
        "commit": origin["commit"],
        "platform": origin["platform"],
        "threads": torch.get_num_threads(),
        "devices": {name: device(name) for name in devices},
        "cache": str(user_cache()),
        "folders": "\n".join(str(folder) for folder in search_folders()),
        "data": {name: "here" if data.describe(name).ready else "not here" for name in data.available()},
        "extras": {name: extra(name) for name in EXTRAS},
    }
