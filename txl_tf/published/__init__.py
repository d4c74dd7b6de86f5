"""Imports checkpoints of the official TensorFlow and PyTorch code and of Hugging Face; exports to Hugging Face."""
