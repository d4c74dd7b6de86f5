"""The files of a run: its model_dir, checkpoints and model card."""
