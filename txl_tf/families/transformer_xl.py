"""Transformer-XL's registration. TensorFlow loads when a method is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from txl_tf.families.base import Family
from txl_tf.families.presets.transformer_xl import PRESETS
from txl_tf.models.transformer_xl.config import TransformerXLRunConfig
from txl_tf.tasks.base import Guide, Pretraining

if TYPE_CHECKING:
    import keras

    from txl_tf.data.lanes import EvaluationData, TrainingData
    from txl_tf.data.manifest import Corpus
    from txl_tf.objectives.base import AttentionView, Objective, Scorer


class NextTokens(Pretraining):
    """Predicting each token from those before it."""

    config = TransformerXLRunConfig
    guide = Guide(
        purpose="predicts each token of a text from those before it",
        commands='python scripts/generate.py --model_dir={dir} --prompt="The " --max_tokens=200 --temperature=0.8\n'
        "python scripts/score.py --model_dir={dir} --input=LINES.txt",
        code="import txl_tf\n\nmodel = txl_tf.load({quoted})\n"
        'print(model.generate("The ", max_tokens=200, temperature=0.8))',
        limit="It continues texts with likely words, which need not be true.",
    )
    abilities: ClassVar[Mapping[str, str]] = dict.fromkeys(("generate", "score"), "causal.language_model:LanguageModel")

    def model(self, settings: Any) -> keras.Model:
        from txl_tf.models.transformer_xl.model import TransformerXL

        return TransformerXL(settings)

    def objective(self, model: Any, config: Any) -> Objective:
        from txl_tf.objectives.causal_lm import CausalLM

        return CausalLM(model, config)

    def training_data(self, corpus: Any, config: Any) -> TrainingData:
        from txl_tf.data.lanes import training_lanes

        return training_lanes(corpus, config)

    def batch_spec(self, config: Any, lanes: int, training: bool) -> Any:
        from txl_tf.objectives.causal_lm import CausalLM

        return CausalLM.batch_spec(config, lanes, training)

    def scorer(self, model: Any, config: Any, **options: Any) -> Scorer:
        from txl_tf.objectives.causal_lm import CausalScorer

        return CausalScorer.of(model, config, **options)

    def evaluation_data(self, corpus: Corpus, split: str, config: Any, **options: Any) -> EvaluationData:
        from txl_tf.objectives.causal_lm import evaluation_lanes

        return evaluation_lanes(corpus, split, config, **options)

    def fit_to_corpus(self, config: Any, corpus: Corpus, given: Mapping[str, Mapping[str, Any]]) -> Any:
        return TransformerXLRunConfig.fit_to_corpus(config, corpus, given)

    def operations(self, config: Any) -> int:
        from txl_tf.objectives.flops import transformer_xl_step

        return transformer_xl_step(config)

    def attention(self, model: Any, corpus: Corpus, config: Any) -> AttentionView | None:
        from txl_tf.objectives.causal_lm import attention_view

        return attention_view(model, corpus, config)


TRANSFORMER_XL = Family(
    name="transformer_xl", title="Transformer-XL", tasks=(NextTokens(),), presets=PRESETS, generates=True
)
