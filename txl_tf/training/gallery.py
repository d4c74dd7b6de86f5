"""What TensorBoard shows of the model at every evaluation: a text sample and maps of attention."""

from txl_tf.training.attention_maps import AttentionMaps


class Gallery:
    """Writes samples and attention maps of a model to TensorBoard.

    Args:
        board: a Board.
        strategy, model: of the run.
        corpus: a Corpus with a "valid" split.
        config: a Config.
        sampler: a function without arguments that returns a continuation of its `prompt`; None: no sample.
    """

    def __init__(self, board, strategy, model, corpus, config, sampler=None):
        self.board = board
        self.maps = AttentionMaps(strategy, model, corpus, config.data.tgt_len)
        self.run = config.train
        self.sampler = sampler

    def show(self, step):
        """Writes what the model does with its current weights, after `step` updates.

        The maps of all heads, one picture per layer, are written only at evaluations 1, 2, 4, 8, .. and the last, so
        that event files stay small.
        """
        if self.sampler:
            parts = ("**Beginning of valid**", as_it_is(self.sampler.prompt), "**Continued**", as_it_is(self.sampler()))
            self.board.text(step, "sample", "\n\n".join(parts))
        evaluations = step // self.run.eval_steps
        all_heads = evaluations & (evaluations - 1) == 0 or step == self.run.train_steps
        for name, pixels in self.maps.pictures(step, all_heads):
            self.board.picture(step, name, pixels)


def as_it_is(text):
    """Text as a Markdown code block, which shows every character as it is."""
    return "\n".join("    " + line for line in text.split("\n"))
