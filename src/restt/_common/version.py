"""The version, where both the package and what every results file says of it can read it."""

__version__ = "1.0.0rc1"
