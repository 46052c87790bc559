"""Several looks at the same image, whose outputs are averaged."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor
from torch.nn.functional import pad

from restt._common.errors import square_side

# Rows and columns by which an image is moved.
MOVES = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))


def mirrored_and_moved(x: Tensor) -> Iterator[Tensor]:  # (B, H·W) each
    """The image and its mirror, each as it is and moved by a pixel in four directions; what comes in from outside is 0.

    >>> import torch
    >>> [view.tolist() for view in mirrored_and_moved(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))][1:3]
    [[[0.0, 1.0, 0.0, 3.0]], [[2.0, 0.0, 4.0, 0.0]]]
    """
    side = square_side("pixels of an image in x", x.shape[-1])
    images = x.unflatten(-1, (side, side))
    for looked_at in (images, images.flip(-1)):
        for down, right in MOVES:
            # A negative pad cuts off what leaves the image.
            moved = pad(looked_at, (right, -right, down, -down))
            yield moved.flatten(-2)
