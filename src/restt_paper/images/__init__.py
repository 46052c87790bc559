"""Experiments on images: Tables I to V, the training curves, and recipes beyond the paper."""
