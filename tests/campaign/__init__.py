"""Not tests: wrong input to every command, and kills; CONTRIBUTING.md names the two commands."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow loads
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
