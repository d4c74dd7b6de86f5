"""Language models that read from left to right: generation, scoring, their SavedModel."""
