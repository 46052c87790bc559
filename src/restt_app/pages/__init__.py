"""Pages that a person reads: one self-contained HTML file for a model, and the shell for others of the same design."""

import importlib.util

if importlib.util.find_spec("jinja2") is None:
    raise ImportError("pages need jinja2: pip install 'restt[app]'")

from restt_app.pages.model import model_page

__all__ = ["model_page"]
