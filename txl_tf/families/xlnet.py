"""XLNet's registration: pretraining, and the tasks of models with other heads.

TensorFlow is imported when a function is called, so that importing this module does not load it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from txl_tf.errors import InputError
from txl_tf.families.base import EvaluationData, Family, Guide, Task, TrainingData, lazy
from txl_tf.families.xlnet_answering import ANSWERING
from txl_tf.families.xlnet_heads import HEADS
from txl_tf.families.xlnet_multi_label import MULTI_LABEL
from txl_tf.families.xlnet_tagging import TAGGING
from txl_tf.models.xlnet.config import XLNetRunConfig
from txl_tf.models.xlnet.presets import PRESETS
from txl_tf.models.xlnet.recipes import RECIPES

if TYPE_CHECKING:
    from txl_tf.data.manifest import Corpus
    from txl_tf.objectives.base import AttentionView, Scorer


def _training_pairs(corpus: Corpus, config: XLNetRunConfig) -> TrainingData:
    from txl_tf.data.xlnet.pairs import TrainingPairs

    # The second number makes these random numbers independent of those of dropout.
    return TrainingPairs(corpus, "train", config.data, config.model.reuse_len, config.objective, (config.train.seed, 1))


def _permutation_scorer(model: Any, config: XLNetRunConfig, **options: Any) -> Scorer:
    from txl_tf.objectives.permutation_lm import PermutationScorer

    if options:
        raise InputError(f"{', '.join(f'--{name}' for name in options)}: not for an XLNet; omit it")
    return PermutationScorer(model, config)


def _evaluation_pairs(corpus: Corpus, split: str, config: XLNetRunConfig) -> EvaluationData:
    from txl_tf.data.xlnet.pairs import EvaluationPairs, TrainingPairs

    data = dataclasses.replace(config.data, batch_size=config.eval.batch_size)
    pairs = TrainingPairs(corpus, split, data, config.model.reuse_len, config.objective, (config.eval.seed, 2))
    return EvaluationPairs(pairs, data.batch_size)


def _permutation_attention(model: Any, corpus: Corpus, config: XLNetRunConfig) -> AttentionView:
    import tensorflow as tf

    from txl_tf.objectives.permutation_lm import attention_view

    one_lane = config.replace(data={"bi_data": False}, eval={"batch_size": 1})
    count = -(-config.model.mem_len // config.model.reuse_len) + 1  # the last one is read with a full memory
    batches = _evaluation_pairs(corpus, "valid", one_lane).batches(host=0, num_hosts=1, replicas_per_host=1).take(count)
    segments = tf.nest.map_structure(lambda *parts: tf.stack(parts), *batches)
    return attention_view(model, config.objective, config.data.tgt_len, segments)


def _pair_spec(config: XLNetRunConfig, lanes: int, training: bool) -> Any:
    from txl_tf.data.xlnet.pairs import PermutationBatch

    return PermutationBatch.spec(lanes, config.data.tgt_len)


def _fit_to_corpus(config: XLNetRunConfig, corpus: Corpus, given: Mapping[str, Mapping[str, Any]]) -> XLNetRunConfig:
    for name in ("sep", "cls"):
        corpus.vocabulary.special_token(name)
    return config.replace(**{**given, "model": {"vocab_size": corpus.vocab_size, **given.get("model", {})}})


def _xlnet_operations(config: XLNetRunConfig) -> int:
    from txl_tf.models.xlnet.flops import training_flops

    return training_flops(config.model, config.data.batch_size, config.data.tgt_len, config.objective.num_predict)


_GUIDE = Guide(
    purpose="predicts any tokens of a text, in any order, from the others",
    commands='python scripts/fill.py --model_dir={dir} --text="A text with a ____ in it."\n'
    "python scripts/finetune.py --init={dir} --task=classification --train=TRAIN.tsv --dev=DEV.tsv "
    "--model_dir=runs/tuned",
    code='import txl_tf\n\nmodel = txl_tf.load({quoted})\nvectors = model.encode(["A text.", "Another one."]).pooled',
    limit="It fills blanks with likely words, which need not be true.",
)

XLNET = Family(
    name="xlnet",
    title="XLNet",
    model=lazy("models.xlnet.model:XLNet"),
    tasks={
        "permutation_lm": Task(
            config=XLNetRunConfig,
            objective=lazy("objectives.permutation_lm:PermutationLM"),
            training_data=_training_pairs,
            scorer=_permutation_scorer,
            evaluation_data=_evaluation_pairs,
            batch_spec=_pair_spec,
            fit_to_corpus=_fit_to_corpus,
            operations=_xlnet_operations,
            attention=_permutation_attention,
            guide=_GUIDE,
            abilities=dict.fromkeys(("fill", "score"), "xlnet.fill_in:FillIn")
            | {"encode": "xlnet.encoder:Encoder", "generate": "causal.left_to_right:Continuation"},
        ),
        **HEADS,
        "answering": ANSWERING,
        "multi_label": MULTI_LABEL,
        "tagging": TAGGING,
    },
    presets=PRESETS,
    recipes=RECIPES,
)
