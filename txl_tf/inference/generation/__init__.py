"""Generation token by token: one loop, its state, and a reader for many texts and one for a few."""
