"""Named settings: of the published models, and for fine-tuning, each with its source."""
