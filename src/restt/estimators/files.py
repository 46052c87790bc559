"""Fitted estimators on disk: one safetensors file of the module's weights, with everything else as JSON inside."""

from __future__ import annotations

import base64
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt import features
from restt._common.errors import shown
from restt.diagonal import DiagonalTT
from restt.estimators.base import BaseResTT
from restt.estimators.closed import FitReport
from restt.estimators.encoding import Encoding
from restt.estimators.gradient import member_outputs
from restt.estimators.modelled import Modelled
from restt.estimators.net import BaseNet
from restt.estimators.progress import History
from restt.estimators.saved import SavedSpread, current_kind
from restt.estimators.settings import PRECISIONS
from restt.estimators.targets import Labels, Values
from restt.features import FeatureMap
from restt.interop import load_module, save_module
from restt.module import ResTT
from restt.prior import Predictive, Prior
from restt.prior.kernel import Kernel
from restt.prior.laplace import LogitPosterior
from restt.prior.rows import FitRows
from restt.topology import Topology
from restt.train import EpochRecord, Penalty

SUFFIX = ".safetensors"
NAME = f"model{SUFFIX}"
# Raised when an estimator's entry of today could be misread by yesterday's code.
VERSION = 3
# The rows of the fit, for partial_fit, are saved where they are no more than this, a third more as text: beside the
# roots of the variance (1.5 MB) the file stays below 2 MB.
MOST_ROW_BYTES = 225_000
KINDS = ("ResTTRegressor", "ResTTClassifier", "ResTTNetRegressor", "ResTTNetClassifier")


def save_estimator(estimator: BaseResTT, path: str | PathLike[str]) -> Path:
    """Write a fitted estimator; see ``save`` of the estimators."""
    if path == "":
        raise ValueError('path must name a folder or a file, got ""; "." is the current folder')
    given = Path(path)
    if given.suffix != SUFFIX and given.exists() and not given.is_dir():
        raise ValueError(f"path must be a folder or end in {SUFFIX}, got the existing file {given}")
    spread = getattr(estimator, "spread_", None)
    state = spread.state if isinstance(spread, SavedSpread) else _described(estimator)
    save_module(estimator.module_, given if given.suffix == SUFFIX else given / NAME, {"estimator": state})
    return given


def _described(estimator: Any) -> dict[str, Any]:
    state = {
        "version": VERSION,
        "kind": type(estimator).__name__,
        "parameters": {name: _to_plain(name, value) for name, value in estimator.get_params(deep=False).items()},
        "encoding": estimator.encoding_.to_config(),
        "target": estimator.target_.to_config(),
        "precision": estimator.precision_,
        "n_features_in": estimator.n_features_in_,
        "feature_names_in": getattr(estimator, "feature_names_in_", np.array([])).tolist() or None,
        "site_covariances": None if estimator.site_covariances_ is None else _packed(estimator.site_covariances_),
    }
    if isinstance(estimator, BaseNet):
        return state | {"history": [record.to_dict() for record in estimator.history_], "n_iter": estimator.n_iter_}
    state["fit_report"] = dict(estimator.fit_report_)
    if getattr(estimator, "posterior_", None) is not None:
        state["posterior"] = _with_tensors(estimator.posterior_)
    if hasattr(estimator, "spread_"):
        state |= {"spread": _with_tensors(estimator.spread_), "prior": estimator.prior_.to_config()}
        rows = estimator.fit_rows_
        if rows is not None and sum(tensor.nbytes for tensor in rows.tensors().values()) <= MOST_ROW_BYTES:
            state["rows"] = _with_tensors(rows)
    return state


def load(path: str | PathLike[str]) -> Any:
    """Load a fitted estimator, or the module of :func:`restt.interop.save_module`, from ``path``.

    Never runs code from the file. FileNotFoundError where there is nothing; ValueError for what is not a model, is
    damaged, or was written by a newer restt.

    >>> import numpy as np
    >>> from restt.estimators import ResTTNetRegressor, load
    >>> X = np.random.default_rng(0).random((30, 2))
    >>> model = ResTTNetRegressor(epochs=5, random_state=0).fit(X, X[:, 0])
    >>> folder = model.save(getfixture("tmp_path") / "model")
    >>> bool((load(folder).predict(X) == model.predict(X)).all())
    True
    """
    given = Path(path)
    if given.is_dir() and not (given / NAME).exists():
        raise ValueError(f"{given} is a folder, but not a model: it has no {NAME}")
    file = given / NAME if given.is_dir() else given
    module, extra = load_module(file)
    state = extra.get("estimator")
    if state is None:
        return module
    if not isinstance(state, dict) or not isinstance(state.get("version"), int):
        raise ValueError(f"{file} does not describe an estimator this restt can build")
    if state["version"] > VERSION:
        raise ValueError(
            f"{file} holds an estimator of version {state['version']}, this restt reads up to {VERSION}: "
            "upgrade restt to load it"
        )
    try:
        return _rebuilt(module, state)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{file} does not describe an estimator this restt can build: {error}") from error


def _rebuilt(module: ResTT | DiagonalTT, state: dict[str, Any]) -> BaseResTT:
    from restt import estimators

    kind = state["kind"]
    if kind not in KINDS:
        raise ValueError(f"its kind is {shown(kind)}, expected one of {list(KINDS)}")
    parameters = {name: _from_plain(name, value) for name, value in state["parameters"].items()}
    if state["version"] < 3:
        kind, parameters = current_kind(state, parameters)
    estimator: Any = getattr(estimators, kind)(**parameters)
    estimator._validate_params()
    estimator.module_ = module
    estimator.encoding_ = Encoding.from_config(state["encoding"])
    target: Any = Labels if kind.endswith("Classifier") else Modelled if kind == "ResTTRegressor" else Values
    estimator.target_ = target.from_config(state["target"])
    if isinstance(estimator, BaseNet):
        estimator.history_ = History(EpochRecord.from_dict(record) for record in state["history"])
        estimator.n_iter_ = state["n_iter"]
    else:
        estimator.fit_report_ = FitReport(state.get("fit_report", {}))
    if kind == "ResTTClassifier":
        saved = state.get("posterior")
        estimator.posterior_ = saved and LogitPosterior.from_config(saved["config"], _tensors(saved))
    if target is Modelled:
        tensors = _tensors(state["spread"])
        if "prior" in state:
            estimator.spread_ = Predictive.from_config(state["spread"]["config"], tensors)
            estimator.prior_ = Prior.from_config(state["prior"])
            estimator.fit_rows_ = _read_rows(state.get("rows"), estimator.spread_)
        else:
            estimator.spread_ = SavedSpread.read(state, tensors, estimator.encoding_)
    estimator.site_means_ = estimator.encoding_.site_means
    covariances = state.get("site_covariances")
    estimator.site_covariances_ = None if covariances is None else _unpacked(covariances)
    estimator.precision_ = state["precision"]
    estimator.n_features_in_ = state["n_features_in"]
    if state["feature_names_in"] is not None:
        estimator.feature_names_in_ = np.array(state["feature_names_in"], dtype=object)
    _check_parts(estimator)
    return estimator


def _read_rows(state: dict[str, Any] | None, spread: Predictive) -> FitRows | None:
    """Read the rows of the fit, where the file has them."""
    if state is None:
        return None
    rows = FitRows.from_config(state["config"], _tensors(state))
    columns, outputs = len(spread.kernel.sites), spread.kernel.layout.outputs
    if rows.numbers.shape[1] != columns or rows.targets.shape[1] != outputs:
        raise ValueError(f"rows of {shown(rows.numbers)} and {shown(rows.targets)} do not fit the model")
    return rows


def _check_parts(estimator: BaseResTT) -> None:
    """Raise ValueError where the module, the encoding and the target were not made for each other."""
    module, encoding, names = estimator.module_, estimator.encoding_, getattr(estimator, "feature_names_in_", None)
    columns, width, covariances = len(encoding.columns), max(encoding.widths), estimator.site_covariances_
    expected_covariances = None if covariances is None else (columns, width, width)
    for what, value, expected in (
        ("widths of the encoding's sites", encoding.widths, module.feature_dims),
        ("outputs of the target", estimator.target_.outputs, module.outputs),
        ("columns", estimator.n_features_in_, columns),
        ("column names", columns if names is None else len(names), columns),
        ("runs of the module", module.runs is None, False),
        ("number of epochs", type(getattr(estimator, "n_iter_", 0)), int),
        ("covariances", None if covariances is None else tuple(covariances.shape), expected_covariances),
    ):
        if value != expected:
            raise ValueError(f"{what}: {shown(value)} where {shown(expected)} belongs")
    if names is not None and not all(isinstance(name, str) for name in names):
        raise ValueError(f"column names must be text, got {shown(names.tolist())}")
    if estimator.precision_ not in PRECISIONS:
        raise ValueError(f"precision must be one of {list(PRECISIONS)}, got {shown(estimator.precision_)}")
    # Everything else shows in a row that the encoding itself offers.
    row = np.zeros((1, columns))
    row[0, list(encoding.order)] = np.where(encoding.categorical, 0.0, encoding.fill)
    outputs = member_outputs(module, encoding, row, estimator.precision_)[0]
    posterior: Any = getattr(estimator, "posterior_", None)
    if posterior is not None:
        _check_states(encoding, posterior.kernel)
        if posterior.classes != module.outputs:
            raise ValueError(f"classes of the posterior: {posterior.classes} where {module.outputs} belong")
    spread = getattr(estimator, "spread_", None)
    if spread is not None:
        spread.interval(outputs, row, estimator.target_.model, 0.9)
    if isinstance(spread, SavedSpread):
        spread.shrunk(np.full_like(outputs, np.inf), row)
    elif spread is not None:
        _check_prior(estimator, spread)


def _check_prior(estimator: Any, spread: Predictive) -> None:
    """Raise ValueError where the predictive distribution or the prior was not made for these columns."""
    encoding, names = estimator.encoding_, estimator.prior_.names
    if len(names) != len(encoding.columns) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"the prior must name {len(encoding.columns)} columns, got {shown(names)}")
    widths = _check_states(encoding, spread.kernel)
    spread.product_deviations([torch.zeros(1, width, dtype=torch.float64) for width in widths])
    str(estimator.prior_)


def _check_states(encoding: Encoding, kernel: Kernel) -> list[int]:
    """Number of states of each column; ValueError where the kernel was not made for them."""
    places = [list(encoding.order).index(n) for n in range(len(encoding.columns))]
    widths = [encoding.widths[place] for place in places]
    states = [site.width for site in kernel.sites]
    if states != widths:
        raise ValueError(f"states of the distribution: {shown(states)} where {shown(widths)} belong")
    return widths


def _with_tensors(part: Predictive | LogitPosterior | FitRows) -> dict[str, Any]:
    return {
        "config": part.to_config(),
        "tensors": {name: _packed(tensor) for name, tensor in part.tensors().items()},
    }


def _tensors(state: dict[str, Any]) -> dict[str, Tensor]:
    return {name: _unpacked(packed) for name, packed in state["tensors"].items()}


def _packed(tensor: Tensor) -> dict[str, Any]:
    """Encode a float64 tensor for JSON in base64, a third of the bytes of its digits."""
    values = np.ascontiguousarray(tensor.numpy(), dtype="<f8")
    return {"shape": list(values.shape), "float64": base64.b64encode(values.tobytes()).decode("ascii")}


def _unpacked(packed: dict[str, Any]) -> Tensor:
    values = np.frombuffer(base64.b64decode(packed["float64"], validate=True), dtype="<f8")
    return torch.from_numpy(values.reshape(packed["shape"]).astype(np.float64))


def _to_plain(name: str, value: Any) -> Any:
    """Encode a parameter for JSON; objects are written as {"kind": …}."""
    if isinstance(value, Topology):
        return {"kind": "topology", "chains": value.chains, "linears": value.linears, "skips": value.skips}
    if isinstance(value, FeatureMap):
        return {"kind": "feature_map", "config": value.to_config()}
    if isinstance(value, Penalty):
        return {"kind": "penalty", "values": value.to_dict()}
    if isinstance(value, dict):
        return {"kind": "dict", "items": [[_to_plain(name, key), _to_plain(name, item)] for key, item in value.items()]}
    if isinstance(value, (PathLike, torch.device)):
        return str(value)
    if isinstance(value, np.random.RandomState):
        return None  # its draws are spent; the saved model no longer needs them
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [_to_plain(name, item) for item in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise TypeError(f"parameter {name} cannot be saved: {shown(value)} of type {type(value).__name__}")


def _from_plain(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value["kind"] == "topology":
        return Topology(len(value["chains"]) + 1, value["chains"], value["linears"], value["skips"])
    if value["kind"] == "feature_map":
        return features.from_config(value["config"])
    if value["kind"] == "penalty":
        return Penalty(**value["values"])
    if value["kind"] == "dict":
        return {key: _from_plain(name, item) for key, item in value["items"]}
    raise ValueError(f"parameter {name} is of the unknown kind {shown(value['kind'])}")
