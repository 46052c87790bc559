"""The version of the package."""

__version__ = "1.0.0rc5"
