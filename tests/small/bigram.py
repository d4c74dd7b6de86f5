"""A third family: a table of bigrams, with a batch and a state of its own. It touches no file of txl_tf."""

import dataclasses

import keras
import tensorflow as tf

from txl_tf.data.lanes import EvaluationLanes, TrainingLanes
from txl_tf.families import Family
from txl_tf.objectives.base import Loss, Objective, ScoredBatch
from txl_tf.ops.scores import keep_mask
from txl_tf.settings.groups import Group, setting
from txl_tf.settings.run import Config, DataConfig, TrainConfig
from txl_tf.tasks.base import Pretraining


@dataclasses.dataclass(frozen=True)
class BigramConfig(Group):
    vocab_size: int = setting(256, "number of tokens in the vocabulary", at_least=1)
    dropout: float = setting(0.0, "of targets")
    dtype: str = setting("float32", "Keras dtype policy")


@dataclasses.dataclass(frozen=True)
class BigramEvalConfig(Group):
    batch_size: int = setting(2, "lanes")
    tgt_len: int = setting(16, "tokens per segment")
    jit_compile: bool = setting(False, "compile")


@dataclasses.dataclass(frozen=True)
class BigramObjectiveConfig(Group):
    smoothing: float = setting(0.0, "of the targets' distribution")


@dataclasses.dataclass(frozen=True)
class BigramRunConfig(Config):
    family = "bigram"
    task = "next_token"

    model: BigramConfig = dataclasses.field(default_factory=BigramConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    eval: BigramEvalConfig = dataclasses.field(default_factory=BigramEvalConfig)
    objective: BigramObjectiveConfig = dataclasses.field(default_factory=BigramObjectiveConfig)


class Bigram(keras.Model):
    def __init__(self, config):
        super().__init__(name="bigram")
        self.config = config
        self.table = self.add_weight(name="table", shape=(config.vocab_size, config.vocab_size), initializer="zeros")
        self.built = True


class NextToken(Objective):
    """Its batch is {"tokens": [b, T]}, its state the last token of each lane and how many were read."""

    def __init__(self, model, config):
        self.model, self.config = model, config

    def initial_state(self, lanes):
        return {"last": tf.zeros([lanes], tf.int32), "read": tf.zeros([lanes], tf.int32)}

    def nll(self, batch, state):
        tokens = batch["tokens"]
        before = tf.concat([state["last"][:, None], tokens[:, :-1]], axis=1)
        logits = tf.gather(self.model.table.value, tf.maximum(before, 0))
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(tokens, 0), logits)
        counts = tf.range(tokens.shape[1]) + state["read"][:, None] > 0  # the first of all has nothing before it
        new = {"last": tokens[:, -1], "read": state["read"] + tokens.shape[1]}
        return tf.where(counts & (tokens >= 0), tokens, -1), nll, new

    def __call__(self, batch, state, seed, training):
        targets, nll, state = self.nll(batch, state)
        weight = tf.cast(targets >= 0, nll.dtype)
        if training and self.model.config.dropout:
            kept = keep_mask(tf.shape(nll), self.model.config.dropout, seed.lanes)
            weight *= tf.cast(kept, nll.dtype)  # so the number of targets differs from lane to lane
        return Loss(tf.reduce_sum(nll * weight), tf.reduce_sum(weight), state)


class BigramScorer(NextToken):
    settings = {"order": 2}  # noqa: RUF012
    breakdowns = {}  # noqa: RUF012

    def refresh(self):
        pass

    def __call__(self, batch, state):
        targets, nll, state = self.nll(batch, state)
        return ScoredBatch(targets, tf.where(targets >= 0, nll, 0), state)


def as_batch(inputs, targets):
    return {"tokens": tf.where(targets >= 0, inputs, -1)}


class TrainingTokens(TrainingLanes):
    def __init__(self, corpus, config):
        super().__init__(corpus, config.data, config.train.seed)
        self.unused = 0

    def batches(self, step, **hosts):
        return super().batches(step, **hosts).map(as_batch)


class EvaluationTokens(EvaluationLanes):
    def __init__(self, corpus, split, config):
        super().__init__(corpus, split, config.eval.batch_size, config.eval.tgt_len)
        self.targets = corpus.split(split).tokens - 2 * self.lanes

    def batches(self, **hosts):
        return super().batches(**hosts).map(as_batch)


class NextTokens(Pretraining):
    config = BigramRunConfig

    def model(self, settings):
        return Bigram(settings)

    def objective(self, model, config):
        return NextToken(model, config)

    def training_data(self, corpus, config):
        return TrainingTokens(corpus, config)

    def batch_spec(self, config, lanes, training):
        return {"tokens": tf.TensorSpec([lanes, config.data.tgt_len], tf.int32)}

    def scorer(self, model, config):
        return BigramScorer(model, config)

    def evaluation_data(self, corpus, split, config):
        return EvaluationTokens(corpus, split, config)

    def fit_to_corpus(self, config, corpus, given):
        return config.replace(**{**given, "model": {"vocab_size": corpus.vocab_size}})


FAMILY = Family(name="bigram", title="bigram table", tasks=(NextTokens(),))
