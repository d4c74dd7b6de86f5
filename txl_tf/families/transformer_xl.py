"""Transformer-XL's registration. TensorFlow loads when a method is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from txl_tf.families.base import Family, imported
from txl_tf.families.presets.transformer_xl import PRESETS
from txl_tf.models.transformer_xl.config import TransformerXLRunConfig
from txl_tf.tasks.base import Guide, Pretraining


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

    model = imported("models.transformer_xl.model:TransformerXL")
    objective = imported("objectives.causal_lm:CausalLM")
    training_data = imported("data.random_lengths:training_lanes")
    batch_spec = imported("objectives.causal_lm:CausalLM.batch_spec")
    scorer = imported("objectives.causal_lm:CausalScorer.of")
    evaluation_data = imported("objectives.causal_lm:evaluation_lanes")
    fit_to_corpus = imported("models.transformer_xl.config:TransformerXLRunConfig.fit_to_corpus")
    operations = imported("objectives.flops:transformer_xl_step")
    attention = imported("objectives.causal_lm:attention_view")


TRANSFORMER_XL = Family(
    name="transformer_xl", title="Transformer-XL", tasks=(NextTokens(),), presets=PRESETS, generates=True
)
