"""XLNets that fill blanks, score and encode texts; their SavedModel."""
