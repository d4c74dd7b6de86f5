"""Objectives: what is learned, apart from what learns."""
