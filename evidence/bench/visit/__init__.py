"""The parts of a visit to a GPU, gpu_visit.py."""
