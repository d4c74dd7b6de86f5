"""Reading and writing files: whole or not at all, with clear errors, and paths taken literally."""
