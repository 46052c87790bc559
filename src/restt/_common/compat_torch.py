"""Every private name of torch that is used: a new version can break this file alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
from torch.autograd import forward_ad

# By name: some are called in every forward pass, where looking them up costs as much.
is_transforming = torch._C._are_functorch_transforms_active
is_batched, is_legacy_batched = torch._C._functorch.is_batchedtensor, torch._C._functorch.is_legacy_batchedtensor
is_any_autocast_enabled = torch._C._is_any_autocast_enabled
count_dispatch_modes = torch._C._len_torch_dispatch_stack

foreach_norm, foreach_copy_ = torch._foreach_norm, torch._foreach_copy_
foreach_zero_, foreach_add_ = torch._foreach_zero_, torch._foreach_add_
fused_adam_, fused_adamw_ = torch._fused_adam_, torch._fused_adamw_


def in_forward_mode() -> bool:
    """Whether this is in forward-mode differentiation."""
    return forward_ad._current_level >= 0


def has_no_values(x: Tensor) -> bool:
    """Whether x is symbolic or traced, so that no decision can depend on its values.

    >>> has_no_values(torch.rand(2))
    False
    >>> torch.func.vmap(lambda row: row * has_no_values(row))(torch.ones(2))
    tensor([1., 1.])
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or is_transforming():
        return True
    return x.is_meta or isinstance(x, FakeTensor)


def dynamo_is_exporting() -> bool:
    """Whether the compiler that follows the code of the caller exports it."""
    translator = getattr(torch._dynamo.symbolic_convert.tls, "current_tx", None)
    return translator is not None and bool(translator.export)


def scan_operator() -> Any:
    """The loop of an exported program. The function around it gives torch 2.7 a body that it cannot export."""
    from torch._higher_order_ops.scan import scan_op

    return scan_op
