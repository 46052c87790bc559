"""The league of tables: the default estimators beside others, everything at its defaults, on the same splits.

Real tables and made ones, regression and classification, from 60 to 200,000 rows. Every model is fitted to the same
rows of a split and scored on its others; nothing is chosen on those. Of 30 tables 21 are made, and nine of their
generators also chose the weights of the prior in 0.8.0: those nine are development tables, not held-out ones.
"""

from restt_bench.league.season import league

__all__ = ["league"]
