"""Transformer-XL (Dai et al. 2019, arXiv 1901.02860)."""
