"""The version, where both the package and what every results file says of it can read it."""

__version__ = "0.11.0"
