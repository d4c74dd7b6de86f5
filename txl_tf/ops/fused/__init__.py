"""Kernels of our own for a GPU."""
