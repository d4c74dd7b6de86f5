"""A text sample from a model during training."""

from __future__ import annotations

import tensorflow as tf

from txl_tf.data.lanes import EvaluationLanes, named_read_errors
from txl_tf.data.manifest import Corpus
from txl_tf.inference.causal.draw_token import Choice
from txl_tf.inference.generation.generator import Generator
from txl_tf.models.transformer_xl.config import Reach
from txl_tf.models.transformer_xl.model import TransformerXL

PROMPT_TOKENS, SAMPLE_TOKENS, TEMPERATURE, SEED = 64, 200, 0.8, 0


class TextSampler:
    """Continues the beginning of valid with a model's current weights, always with the same seed; traced only once.

    It uses a copy of the model on the host, so it runs the same way under every strategy. The model's attention can be
    cached.
    """

    def __init__(self, model: TransformerXL, corpus: Corpus, reach: Reach, jit_compile: bool = True):
        self._model = model
        self._vocabulary = corpus.vocabulary
        with named_read_errors(corpus):
            inputs, _ = next(iter(EvaluationLanes(corpus, "valid", 1, PROMPT_TOKENS).batches()))
        self._ids = inputs.numpy()
        with tf.device("CPU"):
            self._copy = TransformerXL(model.config)
            self._generator = Generator(self._copy, reach, jit_compile=jit_compile)
        self.prompt = self._vocabulary.decode(self._ids[0])

    def __call__(self) -> str:
        """The continuation of `prompt`."""
        with tf.device("CPU"):
            self._copy.set_weights(self._model.get_weights())
            self._generator.refresh()
            choice = Choice.of([SEED], temperature=TEMPERATURE)
            lengths, max_tokens = tf.constant([self._ids.shape[1]]), tf.constant(SAMPLE_TOKENS)
            made = self._generator.generate(tf.constant(self._ids), lengths, max_tokens, choice)
            self._generator.free()  # training needs the memory
        return self._vocabulary.decode(made.numpy()[0], after=self.prompt)
