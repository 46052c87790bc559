"""Which models to average, and with which weights: greedy selection with replacement (Caruana et al. 2004)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

# Rounds of the selection. A weight is a number of rounds over all, so that none is below 1/ROUNDS.
ROUNDS = 20
MOST_LOSS = 2.0
# How many labels are held to be wrong, the share of rows among which they are, and the most for one of them.
DOUBT, UNSURE, MOST_DOUBT = 2.0, 0.25, 0.5
# Bounds of the temperature that turns outputs trained by squares into probabilities. Rows that were fitted perfectly
# would ask for 0; held-out log-loss on wine, breast-cancer and digits was best between 0.07 and 0.2.
BOUNDS = (0.1, 10.0)


def log_loss(
    logits: np.ndarray,  # (…, B, K)
    numbers: np.ndarray,  # (B,)
    weights: np.ndarray,  # (B,)
    doubt: float | np.ndarray = 0.0,  # (B,) or for all
) -> np.ndarray:  # (…)
    """The weighted mean of -log softmax at each row's class, which is the right one but for a probability of ``doubt``.

    >>> round(float(log_loss(np.log([[0.8, 0.2]]), np.array([0]), np.ones(1))), 3)
    0.223
    """
    logs = log_softmax(logits, axis=-1)
    own = logs[..., np.arange(len(numbers)), numbers]
    others = (logs.sum(axis=-1) - own) / max(1, logs.shape[-1] - 1)
    return np.asarray(-(((1 - doubt) * own + doubt * others) @ weights) / weights.sum())


def doubts(
    logits: np.ndarray,  # (B, K)
    numbers: np.ndarray,  # (B,)
) -> np.ndarray:  # (B,)
    """The probability with which each label is held to be wrong, as if :data:`DOUBT` of all were.

    n rows without an error do not show that the next one has none, and without doubt no logit would be too large for
    them. It is shared by the rows that are least sure: an error far from every border says little about the size of
    logits near one, and would forbid borders to be sharp.

    >>> doubts(np.array([[8.0, 0.0], [0.0, 9.0], [0.1, 0.0], [7.0, 0.0]]), np.array([0, 1, 0, 0])).tolist()
    [0.0, 0.0, 0.5, 0.0]
    """
    rows = np.arange(len(numbers))
    others = logits.copy()
    others[rows, numbers] = -np.inf
    margins = np.abs(logits[rows, numbers] - others.max(axis=1))
    unsure = np.argsort(margins, kind="stable")[: max(1, round(UNSURE * len(rows)))]
    found = np.zeros(len(rows))
    found[unsure] = min(DOUBT / len(unsure), MOST_DOUBT)
    return found


def greedy_weights(
    logits: np.ndarray,  # (C, B, K): what each of C candidates says of rows that it has not seen
    numbers: np.ndarray,  # (B,)
    weights: np.ndarray,  # (B,)
    *,
    doubt: float | np.ndarray = 0.0,
    costs: np.ndarray | None = None,  # (C,)
    rounds: int = ROUNDS,
) -> np.ndarray:  # (C,), summing to one
    """Weights of the average of logits with the least log-loss found by adding one candidate at a time.

    It begins with the best one; each round adds the candidate, perhaps again, that lowers the loss of the average most.
    The weights are those of the best round. A candidate with more than :data:`MOST_LOSS` times the best one's loss
    takes no part: it has been far off somewhere, and may be on other rows. ``costs``: by how many nats, over all rows
    together, a candidate has to be better than one without costs; -log of its prior odds.

    >>> right = np.array([[0.0, 2.0], [2.0, 0.0]])
    >>> greedy_weights(np.stack([right, -right]), np.array([1, 0]), np.ones(2))
    array([1., 0.])
    """
    counts = np.zeros(len(logits))
    prior = np.zeros(len(logits)) if costs is None else costs / weights.sum()
    losses = log_loss(logits, numbers, weights, doubt) + prior
    barred = losses > MOST_LOSS * losses.min()
    chosen = int(losses.argmin())
    total, best, kept = np.zeros_like(logits[0]), np.inf, counts
    for size in range(1, rounds + 1):
        counts[chosen] += 1
        total = total + logits[chosen]
        if losses[chosen] < best:
            best, kept = float(losses[chosen]), counts.copy()
        losses = log_loss((total + logits) / (size + 1), numbers, weights, doubt) + (counts @ prior + prior) / (
            size + 1
        )
        losses[barred] = np.inf
        chosen = int(losses.argmin())
    return kept / kept.sum()


def fitted_temperature(
    scores: np.ndarray,  # (B, K)
    numbers: np.ndarray,  # (B,)
    weights: np.ndarray,  # (B,)
    bounds: tuple[float, float] = BOUNDS,
    doubt: float | np.ndarray = 0.0,
) -> float:
    """The temperature under which softmax(scores / temperature) has the least log-loss.

    >>> sure = np.repeat([[0.0, 1.0]], 4, axis=0)
    >>> round(1 / fitted_temperature(sure, np.array([1, 1, 1, 0]), np.ones(4)), 3)  # log 3: three of four
    1.099
    """

    def loss(log_temperature: float) -> float:
        return float(log_loss(scores / np.exp(log_temperature), numbers, weights, doubt))

    found = minimize_scalar(loss, bounds=np.log(bounds), method="bounded")
    return float(np.exp(found.x))
