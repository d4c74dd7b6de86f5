"""Measures of predictions on labelled data, in NumPy."""
