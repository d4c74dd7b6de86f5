"""Compiling a step for a TPU on a machine that has none."""
