"""What restt finds on this machine: versions, devices, which backend contracts chains and why, folders, data."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from typing import Any

from restt import ResTT, chain, data
from restt._common.devices import available_memory, gibibytes
from restt._common.files import user_cache
from restt._common.provenance import describe_device, provenance
from restt.data.loading import search_folders

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
    """Versions, devices, backends and why, threads, folders, data sets and extras, as plain JSON.

    >>> found = info()
    >>> found["devices"][0]["name"], sorted(found)[:3]
    ('cpu', ['backends', 'cache', 'commit'])
    """
    import torch

    origin = provenance()
    devices = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return {
        "versions": {**origin["versions"], **_more_versions()},
        "commit": origin["commit"],
        "platform": origin["platform"],
        "threads": torch.get_num_threads(),
        "devices": [_device(name) for name in devices],
        "backends": [_backend(name) for name in devices],
        "cache": str(user_cache()),
        "data": {
            "folders": [str(folder) for folder in search_folders()],
            "sets": {name: data.describe(name).ready for name in data.available()},
        },
        "extras": {
            extra: [package for package in packages if importlib.util.find_spec(package) is None]
            for extra, packages in EXTRAS.items()
        },
    }


def _more_versions() -> dict[str, str]:
    packages = ("pandas", "pyarrow", "jinja2")
    return {name: importlib.metadata.version(name) for name in packages if importlib.util.find_spec(name)}


def _device(name: str) -> dict[str, str]:
    import torch

    words = "Apple GPU" if name == "mps" else describe_device(name)
    return {"name": name, "description": words, "free": gibibytes(available_memory(torch.device(name)))}


def _backend(device: str) -> dict[str, Any]:
    """What :func:`restt.chain.explain` says of the type that fits on this device use."""
    import torch

    dtype = torch.float64 if device == "cpu" else torch.float32
    module = ResTT(20, 9, 20, 1, dtype=dtype, device=device)
    x = torch.zeros(1, 20, 9, dtype=dtype, device=device)
    first, taken, *others = chain.explain(module, x).splitlines()
    refused = {}
    for line in others:
        found = re.fullmatch(r"\s*not (\w+): (.*)", line)
        assert found is not None, line
        refused[found[1]] = found[2]
    return {
        "device": device,
        "dtype": str(dtype).removeprefix("torch."),
        "backend": first.rpartition(": ")[2],
        "why": taken.partition(": ")[2],
        "not": refused,
    }
