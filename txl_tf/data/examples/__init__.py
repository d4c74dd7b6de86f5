"""Labelled examples with features of fixed shapes, as models read them."""
