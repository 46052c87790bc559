"""The value itself."""

from __future__ import annotations

from torch import Tensor

from restt.features.numeric import NumericMap


class Identity(NumericMap):
    """φ(x) = x: (B, N) -> (B, N, 1), and (B, N, I) stays (B, N, I).

    Beyond the fitted range the value passes through (``outside="extrapolate"``). Works without ``fit``.

    >>> from restt.features import Identity
    >>> Identity()([[0.5, 2.0]]).shape
    torch.Size([1, 2, 1])
    """

    name = "identity"
    parameters = ("outside",)
    dimensions = (2, 3)

    def __init__(self, outside: str = "extrapolate") -> None:
        super().__init__(outside)

    @property
    def width(self) -> int:
        """1, or the width of the vectors seen by ``fit``."""
        return self._input_width()

    def _map(self, values: Tensor) -> Tensor:
        return values if values.ndim == 3 else values.unsqueeze(-1)
