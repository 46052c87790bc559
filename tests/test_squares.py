from __future__ import annotations

import pytest

from restt._squares import square_side


@pytest.mark.parametrize("side", [1, 2, 28, 10**9])
def test_the_side_of_a_square(side):
    assert square_side("pixels", side**2) == side


@pytest.mark.parametrize("places", [-4, 0, 2, 783, 785])
def test_other_numbers_are_no_squares(places):
    with pytest.raises(ValueError, match=rf"pixels must form a square \(such as 784 for 28×28\), got {places}$"):
        square_side("pixels", places)
