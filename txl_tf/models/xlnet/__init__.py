"""XLNet: the model and its settings."""
