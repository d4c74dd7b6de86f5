"""How requests are answered: generation, sessions, texts by themselves, OpenAI's and TensorFlow Serving's requests."""
