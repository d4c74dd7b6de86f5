"""What a run reports while it trains: terminal, metrics.jsonl, TensorBoard."""
