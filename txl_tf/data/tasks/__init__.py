"""Labelled data for fine-tuning: tables, questions and choices, read, tokenised and batched."""
