"""XLNet's batches: pairs of texts, and the spans that are predicted."""
