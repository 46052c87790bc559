"""Cholesky factors in a matrix's own memory.

On the CPU by LAPACK as scipy brings it: half of the matrix is read and written, and nothing is copied. torch's own
functions, which do the work on other devices, take twice as long there.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from scipy.linalg import cython_lapack
from torch import Tensor

# What LAPACK calls the upper half of a matrix stored by columns is the lower half of one stored by rows.
_HALF = b"U"


def factorise(matrix: Tensor) -> Tensor:  # (B, B)
    """The factor L, L Lᵀ the matrix, whose lower half is read; LinAlgError where there is none.

    On the CPU it takes the place of the lower half, and the upper one stays as it is.
    """
    if matrix.device.type != "cpu":
        return torch.linalg.cholesky(matrix)
    if _lapack("dpotrf", _HALF, len(matrix), matrix, len(matrix)):
        raise torch.linalg.LinAlgError("the matrix has no Cholesky factor")
    return matrix


def solve(lower: Tensor, right: Tensor) -> Tensor:  # (B, B), (B, O) -> (B, O)
    """The solution x of L Lᵀ x = right."""
    if lower.device.type != "cpu":
        return torch.cholesky_solve(right, lower)
    solved = right.T.clone(memory_format=torch.contiguous_format)  # by columns
    _lapack("dpotrs", _HALF, len(lower), len(solved), lower, len(lower), solved, len(lower))
    return solved.T


def invert(lower: Tensor) -> Tensor:  # (B, B)
    """The lower half of (L Lᵀ)⁻¹, on the CPU in the place of L."""
    if lower.device.type != "cpu":
        return torch.cholesky_inverse(lower)
    _lapack("dpotri", _HALF, len(lower), lower, len(lower))
    return lower


def inverse_diagonal(lower: Tensor) -> Tensor:  # (B, B) -> (B,)
    """The diagonal of (L Lᵀ)⁻¹; on the CPU L is lost."""
    if lower.device.type != "cpu":
        return torch.cholesky_inverse(lower).diagonal()
    _lapack("dtrtri", _HALF, b"N", len(lower), lower, len(lower))
    return lower.tril_().square_().sum(0)


def _lapack(name: str, *arguments: bytes | int | Tensor) -> int:
    """LAPACK's ``info``: 0 where all went well."""
    info = ctypes.c_int()
    given = [
        ctypes.c_void_p(one.data_ptr())
        if isinstance(one, Tensor)
        else ctypes.c_char_p(one)
        if isinstance(one, bytes)
        else ctypes.byref(ctypes.c_int(one))
        for one in arguments
    ]
    _routine(name)(*given, ctypes.byref(info))
    return info.value


@cache
def _routine(name: str) -> Any:
    """LAPACK's function; Python's lock is free while it runs."""
    capsule, api = cython_lapack.__pyx_capi__[name], ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None)(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))
