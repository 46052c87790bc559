"""Speed and memory of restt against its baselines and the machine's limit, and the league of tables.

Speed is measured in suites (:mod:`restt_bench.suites`), which pass a parity check before anything is timed; everything
else is a study (``restt_bench.runner.STUDIES``).
"""

from restt_bench.case import Case
from restt_bench.parity import ParityError
from restt_bench.runner import NAMES, run

__all__ = ["NAMES", "Case", "ParityError", "run"]
