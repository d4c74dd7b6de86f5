"""Transformer-XL's registration.

TensorFlow is imported when a function is called, so that importing this module does not load it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from txl_tf.errors import InputError
from txl_tf.families.base import EvaluationData, Family, Guide, Task, TrainingData, lazy
from txl_tf.models.transformer_xl.config import TransformerXLRunConfig
from txl_tf.models.transformer_xl.presets import PRESETS
from txl_tf.settings.run import Config

if TYPE_CHECKING:
    from txl_tf.data.manifest import Corpus
    from txl_tf.objectives.base import Scorer


def _training_lanes(corpus: Corpus, config: Config) -> TrainingData:
    from txl_tf.data.lanes import TrainingLanes
    from txl_tf.data.random_lengths import RandomLanes

    kind = RandomLanes if config.data.tgt_len_std else TrainingLanes
    return kind(corpus, config.data, config.train.seed)


def _causal_scorer(model: Any, config: TransformerXLRunConfig, sliding_window: int = 0) -> Scorer:
    from txl_tf.objectives.causal_lm import CausalScorer, segments_at_once

    segments = segments_at_once(config, sliding_window)
    return CausalScorer(model, *config.for_evaluation(), sliding_window, segments)


def _evaluation_lanes(
    corpus: Corpus, split: str, config: TransformerXLRunConfig, sliding_window: int = 0
) -> EvaluationData:
    from txl_tf.data.lanes import EvaluationLanes
    from txl_tf.objectives.causal_lm import segments_at_once

    tokens_at_once = segments_at_once(config, sliding_window) * config.eval.tgt_len
    return EvaluationLanes(corpus, split, config.eval.batch_size, tokens_at_once)


def _segment_spec(config: TransformerXLRunConfig, lanes: int, training: bool) -> Any:
    import tensorflow as tf

    from txl_tf.objectives.causal_lm import segments_at_once

    t_len = config.data.longest if training else segments_at_once(config) * config.eval.tgt_len
    tokens = tf.TensorSpec([lanes, t_len], tf.int32)
    return tokens, tokens


def _fit_to_corpus(
    config: TransformerXLRunConfig, corpus: Corpus, given: Mapping[str, Mapping[str, Any]]
) -> TransformerXLRunConfig:
    model = given.get("model", {})
    if config.model.cutoffs and not corpus.cutoffs and "cutoffs" not in model:
        raise InputError(f"the preset has an adaptive softmax, and {corpus.data_dir} has no cutoffs: give --cutoffs")
    cutoffs = corpus.cutoffs if config.model.cutoffs else ()
    own = {"vocab_size": corpus.vocab_size, "cutoffs": cutoffs}
    config = config.replace(**{**given, "model": own | dict(model)})
    if config.model.attn_type in ("shaw", "alrfou"):  # a vector for each position of training, as in the official code
        klen = config.data.longest + config.model.ext_len + config.model.mem_len
        config = config.replace(model={"max_klen": klen})
    return config


def _transformer_xl_operations(config: TransformerXLRunConfig) -> int:
    from txl_tf.models.transformer_xl.flops import training_flops

    tgt_len = config.data.tgt_len
    scored = tgt_len - tgt_len // 2 if config.objective.loss_positions == "half" else tgt_len
    return training_flops(config.model, config.data.batch_size, tgt_len, scored)


_GUIDE = Guide(
    purpose="predicts each token of a text from those before it",
    commands='python scripts/generate.py --model_dir={dir} --prompt="The " --max_tokens=200 --temperature=0.8\n'
    "python scripts/score.py --model_dir={dir} --input=LINES.txt",
    code="import txl_tf\n\nmodel = txl_tf.load({quoted})\n"
    'print(model.generate("The ", max_tokens=200, temperature=0.8))',
    limit="It continues texts with likely words, which need not be true.",
)

TRANSFORMER_XL = Family(
    name="transformer_xl",
    title="Transformer-XL",
    model=lazy("models.transformer_xl.model:TransformerXL"),
    tasks={
        "causal_lm": Task(
            config=TransformerXLRunConfig,
            objective=lazy("objectives.causal_lm:CausalLM"),
            training_data=_training_lanes,
            scorer=_causal_scorer,
            evaluation_data=_evaluation_lanes,
            batch_spec=_segment_spec,
            fit_to_corpus=_fit_to_corpus,
            operations=_transformer_xl_operations,
            attention=lazy("objectives.causal_lm:attention_view"),
            guide=_GUIDE,
            abilities=dict.fromkeys(("generate", "score"), "causal.language_model:LanguageModel"),
        )
    },
    presets=PRESETS,
    generates=True,
)
