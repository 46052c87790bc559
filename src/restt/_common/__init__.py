"""Helpers of several packages; nothing here imports any of them."""
