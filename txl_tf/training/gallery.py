"""What a run shows of its model at every evaluation: a text sample, and where attention goes."""

from txl_tf.training.attention_maps import AttentionMaps


class Gallery:
    """Shows a model in TensorBoard.

    Args:
        board: a Board.
        strategy, model: of the run.
        corpus: a Corpus with a "valid" split.
        config: a Config.
        sampler: () -> text, the continuation of its `prompt`; None: no sample.
    """

    def __init__(self, board, strategy, model, corpus, config, sampler=None):
        self.board = board
        self.maps = AttentionMaps(strategy, model, corpus, config.data.tgt_len)
        self.run = config.train
        self.sampler = sampler

    def show(self, step):
        """Shows the model's present weights, after `step` updates.

        The attention maps of all heads, a picture for each layer, come at evaluations 1, 2, 4, 8, .. and the last:
        a run's event files stay small.
        """
        if self.sampler:
            parts = ("**Beginning of valid**", as_it_is(self.sampler.prompt), "**Continued**", as_it_is(self.sampler()))
            self.board.text(step, "sample", "\n\n".join(parts))
        evaluations = step // self.run.eval_steps
        all_heads = evaluations & (evaluations - 1) == 0 or step == self.run.train_steps
        for name, pixels in self.maps.pictures(step, all_heads):
            self.board.picture(step, name, pixels)


def as_it_is(text):
    """Text as Markdown shows it letter by letter."""
    return "\n".join("    " + line for line in text.split("\n"))
