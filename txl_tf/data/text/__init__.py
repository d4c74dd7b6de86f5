"""The text of a corpus: published or the user's own, found and read in blocks."""
