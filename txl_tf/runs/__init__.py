"""What a run keeps: its model_dir, checkpoints and model card."""
