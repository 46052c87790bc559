"""Which loop's graph reads memory that nobody owns: each alone, with the allocator's cache given back after it is built."""

import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

NAMES = [
    "graph",
    "auto",
    "train",
    "graphed",
    "reduce-overhead",
    "one-thread",
    "graphed-step",
    "captured-step",
    "compiled-step",
]


def alone(name, cuts):
    import gc

    import torch

    from restt.chain.cuda import launch
    from restt_bench.case import Case
    from restt_bench.implementations.ours import Ours
    from restt_bench.implementations.own_loops import LOOPS, OwnLoop, tracing_backward
    from restt_bench.implementations.train_step import LibraryStep

    if cuts == "whole":
        launch.CUTS = {}
    case = Case(sites=196, feature_dim=2, bond_dim=100, outputs=10, batch=512, device="cuda", precision="tf32")
    if name == "train":
        made = LibraryStep()
    elif name in LOOPS:
        made = OwnLoop(name)
    else:
        made = Ours("auto", graph=name == "graph", way=name if name in ("graphed", "reduce-overhead") else None)
    with tracing_backward(), case.multiplying():
        work = made.build(case, 0)
        work.step()
        torch.cuda.synchronize()
        stage = "given back"
        try:
            for _ in range(4):
                gc.collect()
                torch.cuda.empty_cache()
                for _ in range(5):
                    work.step()
                torch.cuda.synchronize()
            print(name, cuts, "fine", work.is_finite(), flush=True)
        except Exception as error:
            print(name, cuts, stage, "FAILS", str(error)[:80], flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        try:
            alone(*sys.argv[1:])
        except Exception:
            traceback.print_exc()
            print(*sys.argv[1:], "DID NOT BUILD", flush=True)
    else:

        def run(job):
            done = subprocess.run([sys.executable, __file__, *job], capture_output=True, text=True, timeout=150)
            lines = [line for line in done.stdout.splitlines() if line.startswith(job[0])]
            print("\n".join(lines) or f"{job} {done.stderr[-600:]}", flush=True)

        jobs = [(name, cuts) for cuts in ("cut", "whole") for name in NAMES]
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(run, jobs))
