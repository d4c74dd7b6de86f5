"""The devices of a run: strategies and replicas, memory, and which way is faster."""
