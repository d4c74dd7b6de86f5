"""The tasks of models that learn from labelled examples: each is one module or folder, and one line here."""

from __future__ import annotations

from txl_tf.tasks.answering import Answering
from txl_tf.tasks.base import FineTuning
from txl_tf.tasks.classification import Classification
from txl_tf.tasks.multi_label import MultiLabel
from txl_tf.tasks.multiple_choice import MultipleChoice
from txl_tf.tasks.regression import Regression
from txl_tf.tasks.tagging import Tagging

TASKS: tuple[FineTuning, ...] = (
    Classification(),
    Regression(),
    MultipleChoice(),
    Answering(),
    MultiLabel(),
    Tagging(),
)
"""In the order in which messages and --help name them."""
