"""The common parts of benchmarks that compare implementations: rounds, sizes, models, peers."""
