from restt_bench.import_time import measure_import


def test_import_suite_reports_medians_and_what_came_along():
    found = measure_import(rounds=1)
    times = [row["milliseconds"]["median"] for row in found["rows"]]
    assert all(spent > 0 for spent in times)
    assert times[2] >= times[1]
    assert found["loaded"] == []
    [target] = found["targets"]
    assert (target["bound"], target["unit"]) == (300.0, "ms")
    assert target["measured"] == times[2]
