"""Distribution, optimisation, checkpoints and the training loop."""
