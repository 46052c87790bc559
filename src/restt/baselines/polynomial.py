"""Linear models of all products of columns up to a degree: what the paper's PR, PRR and PLaR share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from sklearn.preprocessing import PolynomialFeatures

from restt.baselines.scaled import ScaledRegressor


@dataclass(kw_only=True, eq=False, repr=False)
class PolynomialRegressor(ScaledRegressor):
    """Standardised columns, their products, a linear model.

    The products are not scaled again: this way one penalty each gives the paper's PRR and PLaR rows of Table VI on both
    of its tables, and with a second scaling none was found that does.

    Parameters
    ----------
    degree : int
        Columns in a product at most. The paper's models are quadratic.
    interaction_only : bool
        Whether powers of a column are left out.
    """

    degree: int = 2
    interaction_only: bool = False

    @abstractmethod
    def linear_model(self) -> Any:
        """The model of the products; it has an intercept of its own."""

    def steps(self, columns: int) -> list[Any]:
        products = PolynomialFeatures(self.degree, interaction_only=self.interaction_only, include_bias=False)
        return [products, self.linear_model()]
