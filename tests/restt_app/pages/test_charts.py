"""Charts from plain numbers."""

import pytest

from restt_app.pages.charts import predicted_observed, round_ticks


@pytest.mark.parametrize("step", [1000.0, 1.0])
def test_far_from_zero_ticks_differ_and_lie_between_the_ends(step):
    low, high = 1e17, 1e17 + 40 * step
    ticks = round_ticks(low, high)
    assert sorted(set(ticks)) == ticks
    assert low <= ticks[0] < ticks[-1] <= high
    rows = [{"predicted": low + place * step, "observed": low + place * step} for place in range(0, 41, 8)]
    assert predicted_observed(rows, "y").count("<circle") == 6
