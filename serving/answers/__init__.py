"""How requests are answered: generation, sessions, and the routes that compute each text by itself."""
