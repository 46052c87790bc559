"""Every other system of the paper, and those users will ask for, as estimators.

>>> from restt import baselines
>>> baselines.make("rr", task="regression", alpha=1.0).fit([[0.0], [1.0]], [0.0, 1.0]).predict([[0.5]])
array([0.5])
"""

from restt_baselines.registry import available, make

__all__ = ["available", "make"]
