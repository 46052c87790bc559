"""Command line, tables in files and pages, thin over the library's public functions; ``restt[app]`` installs it."""
