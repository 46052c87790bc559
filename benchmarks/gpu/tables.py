"""The report on the screen."""

from __future__ import annotations

from gpu.measure import Record


def print_tables(report: Record) -> None:
    _print_tuning(report)
    _print_steps(report.get("time", {}))
    for row in report.get("targets", []):
        print(
            f"{row['what']:<40} {row['measured']:>8.3f}  {row['kind']} {row['bound']} {row['unit']}: {row['verdict']}"
        )
    for row in report.get("speed_ups", []):
        print(f"{row['name']:<20} r={row['bond']:<4} {row['times']:.1f} times our tf32 step")
    checks = report.get("check", [])
    bad = [case for case in checks if not case.get("passed")]
    print(f"check: {len(checks) - len(bad)} of {len(checks)} passed")
    for case in bad[:20]:
        print("  failed", {key: value for key, value in case.items() if key != "seconds"})


def _print_tuning(report: Record) -> None:
    for case in report.get("tune", []):
        setting = case.get("sweep") or case.get("weights")
        numbers = [
            f"{name[:-3]} {case[name]:.3f}"
            for name in ("forward_ms", "backward_ms", "dW_ms", "both_ms")
            if name in case
        ]
        tail = " ".join(numbers) or case.get("error", "")[:70]
        print(case["bond"], case["precision"], f"S={case['runs']}", *setting.values(), "|", tail)
    for row in report.get("fastest", []):
        print("fastest", row)


def _print_steps(timed: Record) -> None:
    for case in timed.get("steps", []):
        kind = f"r={case['bond']:<4} {case['precision']:<8} S={case['runs']:<3} I={case['width']} {case['loss']}"
        if "error" in case:
            print(kind, case["error"][:90])
            continue
        memory = f"  peak {case['peak_GiB']:.2f} GiB" if "peak_GiB" in case else ""
        print(kind, f"step {case['step_ms']:.3f} ms  limit {case.get('limit_ms', float('nan')):.3f} ms{memory}")
    for case in timed.get("inference", []):
        found = case.get("ms", case.get("error"))
        print(f"inference r={case['bond']} {case['precision']} {case['images']} images", found)
    for case in timed.get("peers", []):
        found = case.get("step_ms", case.get("error"))
        print(f"{case['name']:<20} r={case['bond']:<4}", found, case.get("peak_GiB", ""))
