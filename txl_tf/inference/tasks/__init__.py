"""Fine-tuned models: evaluation, prediction, their SavedModel."""
