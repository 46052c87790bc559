"""Settings under which the baselines give the paper's Table VI on its split, as far as they could be found.

The paper publishes none. They were searched on the split with seed 16 (the one that gives the paper's LR and PR rows)
over scalers, orders of scaling and multiplying, and round values of the penalties, by how close the scores on the test
rows come to the paper's. So they are possible, not proven: for one table alone many settings fit as well, and one for
both tables was preferred. They are matched to test rows and say nothing about how well a baseline can do.

R² agrees to the third digit on both tables for LR, PR, RR, LaR and SVR, within 0.001 for PRR and PLaR. RR and LaR need
another penalty for ALE, where two values fit: 20 and 0.7 for RR, 0.05 and 0.0025 for LaR. RMSE agrees for Boston; for
ALE the paper's does not fit its own R² (RR has a better R² than LR and a worse RMSE) and is off by up to 0.003.
"""

from __future__ import annotations

from typing import Any

_BOTH: dict[str, dict[str, Any]] = {
    "lr": {},
    "pr": {"degree": 2},
    "prr": {"degree": 2, "alpha": 1.0},
    "plar": {"degree": 2, "alpha": 0.03},
    "svr": {"C": 0.5, "epsilon": 0.1, "gamma": "scale"},
}

# Data set -> baseline -> what to pass to restt_baselines.make.
PAPER_SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "boston": {**_BOTH, "rr": {"alpha": 10.0}, "lar": {"alpha": 1.0}},
    "ale": {**_BOTH, "rr": {"alpha": 20.0}, "lar": {"alpha": 0.05}},
}
