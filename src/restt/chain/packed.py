"""Site vectors side by side, (…, ΣI) instead of (…, N, max I): ragged widths then cost their sum.

One categorical column of 1,000 levels among 19 of width 3 makes a padded row 20,000 numbers and a packed one 1,057, and
the products differ by the same factor. The weights stay stacked and padded, (N-2, max I, R, R), since that is what is
stored and optimised; only their used part is read, and only its gradient computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# A padded x of at least this many times the packed size is packed before it is contracted: one copy of x for as much
# less work in the products.
WORTH_PACKING = 2


def unpack(
    x: Tensor,  # (…, ΣI)
    widths: Sequence[int],  # I of each site
) -> Tensor:  # (…, N, max I), zero beyond a site's width
    """The padded form.

    >>> unpack(torch.arange(1.0, 5.0), [1, 3])
    tensor([[1., 0., 0.],
            [2., 3., 4.]])
    """
    widest = max(widths)
    if min(widths) == widest:
        return x.unflatten(-1, (len(widths), widest))
    nothing = x.new_zeros(*x.shape[:-1], widest)
    pieces = [piece for site in x.split(list(widths), -1) for piece in (site, nothing[..., : widest - site.shape[-1]])]
    return torch.cat(pieces, dim=-1).unflatten(-1, (len(widths), widest))


def pack(
    x: Tensor,  # (…, N, max I)
    widths: Sequence[int],
) -> Tensor:  # (…, ΣI)
    """The packed form, without the padding.

    >>> pack(torch.tensor([[1.0, 0.0, 0.0], [2.0, 3.0, 4.0]]), [1, 3])
    tensor([1., 2., 3., 4.])
    """
    # Unbound, not sliced: the gradient of one unbind is one stack, that of a slice a full-size tensor of zeros.
    return torch.cat([site[..., :width] for site, width in zip(x.unbind(-2), widths, strict=True)], dim=-1)


def is_worth_packing(widths: Sequence[int]) -> bool:
    """Whether a padded x of these widths is packed first.

    >>> is_worth_packing([3] * 19 + [1000]), is_worth_packing([2, 3, 3])
    (True, False)
    """
    return len(widths) * max(widths) >= WORTH_PACKING * sum(widths)
