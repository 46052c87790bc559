"""Data enters here: arrays and tensors are read and checked once, so that the model need not look again."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.compat_torch import has_no_values
from restt._common.errors import shown

LARGEST_WEIGHT = 1e30  # of a row; squares of products with larger ones, and with their inverses, are no floats


def read_values(x: Any, dimensions: tuple[int, ...] = (2,)) -> Tensor:
    """``x`` as a finite float tensor of shape (B, N) or, where 3 is among ``dimensions``, (B, N, I).

    Float tensors and arrays keep their dtype and device, whole numbers become the default float dtype. Inside
    ``torch.compile``, ``torch.export`` and the transforms of ``torch.func`` no value is looked at.
    """
    values = _float_tensor(x)
    check_shape(tuple(values.shape), dimensions)
    if has_no_values(values):
        return values
    finite = torch.isfinite(values)
    if not bool(finite.all()):
        bad = (~finite).nonzero()
        first = tuple(bad[0].tolist())
        raise ValueError(
            f"x must be finite, got {len(bad)} NaN or infinite value(s); "
            f"the first is {values[first].item()} at {position(first)}"
        )
    return values


def unmasked(x: Any) -> Any:
    """A numpy masked array as a plain one, NaN or None where it is masked; anything else as it is.

    >>> unmasked(np.ma.masked_equal([1, 0, 3], 0))
    array([ 1., nan,  3.])
    """
    if not np.ma.isMaskedArray(x) or x.dtype.kind in "cV":
        return x
    dtype: Any = x.dtype
    if np.ma.is_masked(x) and dtype.kind not in "fmM":
        dtype = np.float64 if dtype.kind in "biu" else object
    values = np.array(x.data, dtype=dtype)
    values[np.ma.getmaskarray(x)] = None  # NaN in numbers, NaT in times
    return values


def check_shape(shape: tuple[int, ...], dimensions: tuple[int, ...]) -> None:
    """Refuse a shape of other than these numbers of axes, or without sites."""
    if len(shape) not in dimensions:
        wanted = " or ".join({2: "(B, N)", 3: "(B, N, I)"}[d] for d in dimensions)
        raise ValueError(f"x must have shape {wanted}, got shape {shape}")
    if 0 in shape[1:]:
        raise ValueError(f"x must have at least one site and one value per site, got shape {shape}")


def position(index: tuple[int, ...]) -> str:
    """``row 3, site 0`` for the index of an entry of x."""
    return ", ".join(f"{axis} {i}" for axis, i in zip(("row", "site", "entry"), index, strict=False))


def read_weights(sample_weight: Any, rows: int) -> Tensor:
    """Row weights (B,) in float64 on the CPU; all ones for ``None``."""
    if rows == 0:
        raise ValueError("x must have at least one row to fit, got none")
    if sample_weight is None:
        return torch.ones(rows, dtype=torch.float64)
    if isinstance(sample_weight, Tensor):
        sample_weight = sample_weight.detach().cpu().numpy()
    try:
        weights = torch.from_numpy(np.array(unmasked(sample_weight), dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise TypeError(f"sample_weight must hold numbers, got {shown(sample_weight)}") from error
    if tuple(weights.shape) != (rows,):
        raise ValueError(f"sample_weight must have shape ({rows},), one per row of x, got {tuple(weights.shape)}")
    if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
        raise ValueError("sample_weight must be finite, at least 0 everywhere and above 0 somewhere")
    if not bool(weights.any()):
        raise ValueError("sample_weight must be above zero for at least one row, got zero for all of them")
    largest = float(weights.max())
    if not 1 / LARGEST_WEIGHT <= largest <= LARGEST_WEIGHT:
        raise ValueError(
            f"sample_weight must have its largest weight between {1 / LARGEST_WEIGHT:g} and {LARGEST_WEIGHT:g}, "
            f"got {largest:g}: multiply the weights so that their mean is 1"
        )
    return weights


def _float_tensor(x: Any) -> Tensor:
    if isinstance(x, Tensor):
        if x.is_complex():
            raise TypeError(f"x must hold real numbers, got a tensor of dtype {x.dtype}")
        return x if x.is_floating_point() else x.to(torch.get_default_dtype())
    array = np.asarray(unmasked(x))
    if array.dtype == object:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"x must hold numbers, got {shown(x)} with entries that are not ({error})") from None
    if array.dtype.kind in "iub":
        return torch.from_numpy(array.astype(np.float64)).to(torch.get_default_dtype())
    if array.dtype.kind != "f":
        raise TypeError(f"x must hold real numbers, got {shown(x)} of dtype {array.dtype}")
    known = array.dtype.itemsize <= 8
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("=") if known else np.float64))
