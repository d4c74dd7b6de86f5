"""Examples of tasks made from Python's standard library."""
