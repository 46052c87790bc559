"""What all experiments share: cells, the store of their results, locks, archives, verdicts, tables, the report.

Nothing here knows a single experiment.
"""
