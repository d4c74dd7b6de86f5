"""The number of floating-point operations of a training step: the numerator of MFU (model FLOPs utilisation)."""
