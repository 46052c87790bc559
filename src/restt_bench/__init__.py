"""Speed and memory of the chain against its peers and the machine's limit, measured so that it can be trusted."""

from restt_bench.case import Case
from restt_bench.parity import ParityError
from restt_bench.runner import run
from restt_bench.suites import NAMES as SUITE_NAMES

__all__ = ["SUITE_NAMES", "Case", "ParityError", "run"]
