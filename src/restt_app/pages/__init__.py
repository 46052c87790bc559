"""Pages that a person reads: one self-contained HTML file for a model, and the shell for others of the same design."""

import typing

if typing.TYPE_CHECKING:
    from restt_app.pages.model import model_page

__all__ = ["model_page"]


def __getattr__(name: str) -> typing.Any:
    if name != "model_page":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from restt_app.pages.model import model_page

    return model_page
