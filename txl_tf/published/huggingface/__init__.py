"""Hugging Face's format: models, tokenizers and their files."""
