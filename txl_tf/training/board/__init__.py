"""Reports of a run while it trains: terminal, metrics.jsonl, TensorBoard."""
