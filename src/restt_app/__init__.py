"""Command line, tables in files and pages, thin over the library's public functions; ``restt[app]`` installs it."""

import importlib.util

_NEEDED = ("typer", "rich", "pandas", "pyarrow", "jinja2")
if _missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
    raise ImportError(f"restt_app needs {', '.join(_missing)}: pip install 'restt[app]'")
