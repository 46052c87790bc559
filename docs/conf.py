"""Sphinx settings; `make docs` builds with warnings as errors."""

from pathlib import Path

import restt

project = "restt"
release = version = restt.__version__
html_title = "restt"
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx-mathjax-offline",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "*.html"]
suppress_warnings = [
    "misc.highlighting_failure",  # the architecture's picture is for readers of the repository
    "myst.xref_missing",  # pages that the repository shares link to its files
    "config.cache",  # the gallery's order is a function
]
nitpicky = False
highlight_language = "none"  # blocks without a language are commands and output

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
# No network while building: references to other projects stay plain text.
intersphinx_mapping = {}

# The gallery in the order in which a newcomer may want it.
GALLERY = (
    "plot_first_fit.py",
    "plot_real_interaction.py",
    "plot_exact_trees.py",
    "plot_honest_intervals.py",
    "plot_imbalanced_classes.py",
    "plot_system_identification.py",
    "plot_next_rows.py",
    "plot_own_topology.py",
    "plot_ten_thousand_sites.py",
    "plot_csv_to_page.py",
)

sphinx_gallery_conf = {
    "within_subsection_order": GALLERY.index,
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "abort_on_example_error": True,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,  # times of a busy machine are no result
    "write_computation_times": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "capture_repr": (),  # what a last line returns is no result: scripts print theirs
}

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["restt.css"]
html_theme_options = {
    "show_toc_level": 2,
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "navigation_with_keys": True,
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": []}
# The pages that the program itself writes, as they are.
html_extra_path = ["model-page.html", "report.html"]


def _skip_routing(app, what, name, obj, skip, options):
    """scikit-learn's own methods for metadata refer to pages of its documentation."""
    return skip or name == "get_metadata_routing" or (name.startswith("set_") and name.endswith("_request"))


def _draw_topologies(app):
    """The pictures of the model's page, by the library itself."""
    folder = Path(app.srcdir) / "_pictures"
    folder.mkdir(exist_ok=True)
    for name in ("residual", "plain"):
        restt.Topology.preset(name, 3).draw(folder / f"{name}.png")


def setup(app):
    app.connect("autodoc-skip-member", _skip_routing)
    app.connect("builder-inited", _draw_topologies)
