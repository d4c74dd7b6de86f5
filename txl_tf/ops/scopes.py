"""Names of the tf.name_scopes by which tpu/aot/report.py assigns costs; other operations have a Keras layer's name."""

ATTENTION = "attention"
"""Gradients of attention, which are traced outside the layer's own scope."""

ADAM = "adam"
"""The optimizer's update of a variable, if it consists of several operations."""
