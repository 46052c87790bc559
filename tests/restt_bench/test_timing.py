import pytest

from restt_bench.timing import SETTLE_BELOW, interleaved, measure, planned_rounds, summarise


class Clock:
    """Time that only passes when somebody works."""

    def __init__(self):
        self.now, self.log = 0.0, []

    def __call__(self):
        return self.now

    def worker(self, name, seconds):
        def work():
            self.log.append(name)
            self.now += seconds

        return work


def test_everybody_takes_turns():
    assert interleaved({"a": 3, "b": 3}) == ["a", "b", "a", "b", "a", "b"]


def test_fewer_rounds_are_spread_over_the_whole_run():
    order = interleaved({"quick": 12, "slow": 3})
    assert order.count("quick") == 12
    assert [order[: place + 1].count("quick") for place, who in enumerate(order) if who == "slow"] == [4, 8, 12]


def test_nobody_to_time():
    assert interleaved({}) == []


def test_slow_contenders_get_fewer_rounds_but_never_under_three():
    assert planned_rounds(2.0, rounds=41, budget=10.0) == 5
    assert planned_rounds(100.0, rounds=41, budget=10.0) == 3
    assert planned_rounds(100.0, rounds=2, budget=10.0) == 2


def test_timed_calls_are_interleaved_and_warm_up_is_left_out():
    clock = Clock()
    first = {"done": False}

    def compiles_once():
        clock.log.append("late")
        clock.now += 0.002 if first["done"] else 0.9
        first["done"] = True

    calls = {"late": compiles_once, "even": clock.worker("even", 0.004)}
    found = measure(calls, rounds=3, budget=10.0, clock=clock)
    assert found["late"].median == found["late"].upper == pytest.approx(0.002)
    assert found["even"].median == pytest.approx(0.004)
    # two warm-up calls each, then turns of one settling and one timed call
    assert clock.log == ["late"] * 2 + ["even"] * 2 + ["late", "late", "even", "even"] * 3


def test_long_calls_are_not_repeated_to_settle():
    clock = Clock()
    found = measure({"slow": clock.worker("slow", 2 * SETTLE_BELOW)}, rounds=5, budget=1.0, clock=clock)
    assert found["slow"].rounds == 3
    assert len(clock.log) == 1 + 3


def test_the_device_is_waited_for_inside_the_timed_span():
    clock = Clock()

    def device_finishes():
        clock.now += 0.5

    found = measure({"a": lambda: None}, rounds=3, budget=1.0, synchronize=device_finishes, clock=clock)
    assert found["a"].median == pytest.approx(0.5)


def test_quartiles_interpolate():
    found = summarise([4.0, 1.0, 2.0, 3.0])
    assert (found.lower, found.median, found.upper) == (1.75, 2.5, 3.25)
    assert found.as_milliseconds() == {
        "median": 2500.0,
        "lower": 1750.0,
        "upper": 3250.0,
        "fastest": 1000.0,
        "rounds": 4,
    }


def test_quick_calls_are_repeated_between_two_readings_of_the_clock():
    now, counted = [0.0], {"quick": 0, "slow": 0}

    def call(name, seconds):
        counted[name] += 1
        now[0] += seconds

    calls = {"quick": lambda: call("quick", 0.001), "slow": lambda: call("slow", 0.5)}
    found = measure(calls, rounds=3, budget=10.0, at_least=0.01, clock=lambda: now[0])
    assert found["quick"].median == pytest.approx(0.001)
    assert found["slow"].median == pytest.approx(0.5)
    assert counted == {"quick": 2 + 3 * (1 + 10), "slow": 2 + 3 * (1 + 1)}
