"""The Transformer-XL decoder and its language-model head."""
