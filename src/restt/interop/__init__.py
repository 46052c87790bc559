"""Models leave and come back: one file of weights, or a graph that other runtimes run.

>>> import restt
>>> from restt import interop
>>> folder = getfixture("tmp_path")
>>> model = restt.ResTT(sites=4, feature_dim=2, bond_dim=3, outputs=1)
>>> _ = interop.save_module(model, folder / "model.safetensors")
>>> same, extra = interop.load_module(folder / "model.safetensors")
"""

from __future__ import annotations

from restt.interop.exporting import export
from restt.interop.storage import load_module, save_module

__all__ = ["export", "load_module", "save_module"]
