"""Speed and memory of restt against its baselines and the machine's limit, measured so that it can be trusted."""

from restt_bench.case import Case
from restt_bench.parity import ParityError
from restt_bench.runner import NAMES, run

__all__ = ["NAMES", "Case", "ParityError", "run"]
