"""Evaluation, generation and export of a trained model."""
