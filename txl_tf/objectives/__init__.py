"""Objectives: the losses that models learn to minimize."""
