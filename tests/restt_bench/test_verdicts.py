from dataclasses import replace

import pytest

from restt_bench.case import Case
from restt_bench.runner import expand
from restt_bench.suites import IMAGE, SUITES, TABLE, Suite, suite_of
from restt_bench.targets import Target
from restt_bench.verdicts import parameter_growth, suite_exponents, suite_targets

CHOSEN = "auto"  # of the CPU


def row(implementation, case, milliseconds):
    return {"implementation": implementation, "role": "ours", "case": case.as_dict(), "step": {"median": milliseconds}}


def test_main_targets_are_held_against_what_a_user_gets():
    suite = suite_of("main", "cpu", quick=False)
    times = {CHOSEN: 20.0, "fused_cpu": 1.0, "limit": 10.0, "textbook": 100.0, "tensorkrowch": 500.0}
    rows = [row(name, case, ms) for case in suite.cases for name, ms in times.items()]
    found = {target.what: target for target in suite_targets(suite, rows)}
    assert len(found) == 9
    assert found["r=20: step against bare GEMMs"].met
    assert found["r=20: step against bare GEMMs"].measured == 2.0
    assert not found["r=100: step against bare GEMMs"].met
    assert found["r=20: speed-up over textbook"].verdict == "missed: 0.83 of the bound"
    assert found["r=20: speed-up over tensorkrowch"].met


def test_missing_baselines_decide_no_target():
    suite = suite_of("main", "cpu", quick=False)
    rows = [row(CHOSEN, case, 1.0) for case in suite.cases]
    rows += [{"implementation": "tensorkrowch", "case": case.as_dict(), "skipped": "absent"} for case in suite.cases]
    assert suite_targets(suite, rows) == []


def test_quick_sizes_decide_no_target():
    for name in SUITES:
        suite = suite_of(name, "cpu", quick=True)
        rows = [row(who, case, 1.0) for case in suite.cases for who in (CHOSEN, "limit", "textbook")]
        assert suite_targets(suite, rows) == [], name


def test_small_targets():
    suite = suite_of("small", "cpu", quick=False)
    rows = [row(CHOSEN, TABLE, 1.0), row(CHOSEN, replace(TABLE, runs=64), 25.0)]
    one, many = suite_targets(suite, rows)
    assert (one.met, one.measured) == (True, 1.0)
    assert (many.met, many.measured) == (False, 25.0)


@pytest.mark.parametrize(("power", "met"), [(1.0, True), (1.2, False)])
def test_linearity_in_the_sites_is_a_target(power, met):
    suite = suite_of("scaling-n", "cpu", quick=False)
    rows = [row(CHOSEN, case, case.sites**power) for case in suite.cases]
    [target] = suite_targets(suite, rows)
    assert target.measured == pytest.approx(power)
    assert target.met is met


def test_exponents_stand_beside_the_paper_and_the_erratum():
    suite = suite_of("scaling-r", "cpu", quick=False)
    rows = [row(CHOSEN, case, 3 * case.bond_dim**2) for case in suite.cases]
    [entry] = suite_exponents(suite, rows)
    assert entry["exponent"] == entry["exponent_of_largest"] == pytest.approx(2.0)
    assert (entry["paper_exponent"], entry["holds_exponent"]) == (3.0, 2.0)


def test_one_size_has_no_exponent():
    suite = suite_of("scaling-r", "cpu", quick=False)
    assert suite_exponents(suite, [row("textbook", suite.cases[0], 1.0)]) == []


def test_the_full_tensor_grows_by_its_width():
    suite = suite_of("full-tensor", "cpu", quick=False)
    rows = [row("full-tensor", case, 1e-3 * 2.0**case.sites) for case in suite.cases]
    [entry] = suite_exponents(suite, rows)
    assert entry["factor_per_site"] == pytest.approx(2.0)
    assert entry["claimed_factor"] == 2


def test_parameters_are_counted_exactly():
    case = replace(IMAGE, bond_dim=10)
    suite = Suite("s", "", (case, replace(case, bond_dim=100)), axis="bond_dim", is_sweep=True)
    train, residual = parameter_growth(suite)
    assert train["parameters"] == [39020, 3882200]
    assert residual["parameters"] == [43020, 3922020]


def test_a_missed_target_says_by_how_much():
    assert Target("", "at most", 2.0, "×", 5.0).verdict == "missed: 2.50 times the bound"


def test_groups_expand_and_wrong_names_are_refused():
    assert set(expand(["all"])) == {*SUITES, "import"}
    with pytest.raises(ValueError, match="name must be one of"):
        expand(["fast"])


def test_cases_refuse_what_cannot_be_timed():
    with pytest.raises(ValueError, match="bond_dim must be at least 1"):
        Case(bond_dim=0)
    with pytest.raises(ValueError, match="topology must be one of"):
        Case(topology="ring")


def test_gpu_targets_are_held_against_captured_steps():
    suite = suite_of("main", "cuda", quick=False)
    assert len(suite.cases) == 15
    rows = []
    for case in suite.cases:
        own = {"implementation": "auto-graph", "role": "ours", "case": case.as_dict(), "peak_gib": 0.15}
        slower = 1.0 if case.runs is None and case.feature_dim == 2 else 4.2
        rows += [{**own, "step": {"median": 0.5 * slower}}, row("torch-graph", case, 0.1), row("auto", case, 9.0)]
    found = {target.what: target for target in suite_targets(suite, rows)}
    assert len(found) == 3 * 2 * 2 + 2 * 2
    assert (found["r=20, tf32: one run"].measured, found["r=20, tf32: one run"].met) == (0.5, False)
    assert found["r=100, bf16: one run"].met
    assert (found["r=20, tf32: 10 runs"].measured, found["r=20, tf32: 10 runs"].met) == (4.2, False)
    assert found["r=100, tf32: patches, I=8"].met
    assert found["r=100, bf16: peak memory"].measured == 0.15
    inference = suite_of("inference", "cuda", quick=False)
    rows = [
        {"implementation": "auto-graph", "role": "ours", "case": case.as_dict(), "infer": {"median": 6.0}}
        for case in inference.cases
    ]
    assert [target.met for target in suite_targets(inference, rows)] == [False, False]
