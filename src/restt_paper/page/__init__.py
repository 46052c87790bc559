"""All results as one self-contained HTML page, beside the paper's numbers."""

from restt_paper.page.build import paper_page

__all__ = ["paper_page"]
