"""People's own tables: from a file to a model with a card, from a model to predictions and a page.

    fitted = restt.workflow.fit_table("data.csv", "y")
    fitted.save("model")
    restt.workflow.predict_table("model", "new.csv")
    restt.workflow.explain_table("model", "data.csv", "page.html")

The command line does the same with the same functions.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from restt_app.workflow.card import Card, FittedTable, load_table
    from restt_app.workflow.comparing import check_table, compare_tables
    from restt_app.workflow.fitting import fit_table
    from restt_app.workflow.machine import info
    from restt_app.workflow.predicting import Predictions, explain_table, predict_table, write_predictions
    from restt_app.workflow.table import Table, read_table

# Module -> its public names, loaded on first use: a fit needs no comparison, and predictions no fit.
_NAMES = {
    "card": ("Card", "FittedTable", "load_table"),
    "comparing": ("check_table", "compare_tables"),
    "fitting": ("fit_table",),
    "machine": ("info",),
    "predicting": ("Predictions", "explain_table", "predict_table", "write_predictions"),
    "table": ("Table", "read_table"),
}

__all__ = [
    "Card",
    "FittedTable",
    "Predictions",
    "Table",
    "check_table",
    "compare_tables",
    "explain_table",
    "fit_table",
    "info",
    "load_table",
    "predict_table",
    "read_table",
    "write_predictions",
]


def __getattr__(name: str) -> typing.Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
