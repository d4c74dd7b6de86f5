"""What the benchmarks that compare implementations share: rounds, sizes, models, peers."""
