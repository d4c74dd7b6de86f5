"""Published checkpoints, in and out: the official TensorFlow and PyTorch code's, and Hugging Face's."""
