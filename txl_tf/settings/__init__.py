"""Settings: what they are as dataclasses, those of a run, and the names that a user chooses among."""
