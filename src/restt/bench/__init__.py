"""Speed and memory of the chain against its peers and the machine's limit, measured so that it can be trusted."""

from restt.bench.case import Case
from restt.bench.parity import ParityError
from restt.bench.runner import run
from restt.bench.suites import NAMES as SUITE_NAMES

__all__ = ["SUITE_NAMES", "Case", "ParityError", "run"]
