"""Pages that a person reads: one self-contained HTML file for a model, and the shell for others of the same design."""

from restt_app.pages.model import model_page

__all__ = ["model_page"]
