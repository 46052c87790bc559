"""The league of tables: the default estimators beside others, everything at its defaults, on the same splits.

Real tables and made ones, regression and classification, from 60 to 200,000 rows. Every model is fitted to the same
rows of a split and scored on its others; nothing is chosen on those. What is reported: means and spreads over splits,
paired differences with intervals, seconds, the log-loss of probabilities, and the coverage and negative log-likelihood
of models that predict a distribution.
"""

from restt_bench.league.picture import draw_league
from restt_bench.league.season import league

__all__ = ["draw_league", "league"]
