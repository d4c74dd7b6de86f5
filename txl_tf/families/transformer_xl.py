"""Transformer-XL's registration. It names functions by text, so that TensorFlow loads only on use."""

from __future__ import annotations

from txl_tf.families.base import Family, Guide, Task, lazy
from txl_tf.families.presets.transformer_xl import PRESETS
from txl_tf.models.transformer_xl.config import TransformerXLRunConfig

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
            fit_to_corpus=TransformerXLRunConfig.fit_to_corpus,
            objective=lazy("objectives.causal_lm:CausalLM"),
            batch_spec=lazy("objectives.causal_lm:CausalLM.batch_spec"),
            training_data=lazy("data.random_lengths:training_lanes"),
            scorer=lazy("objectives.causal_lm:CausalScorer.of"),
            evaluation_data=lazy("objectives.causal_lm:evaluation_lanes"),
            operations=lazy("training.flops:transformer_xl_step"),
            attention=lazy("objectives.causal_lm:attention_view"),
            guide=_GUIDE,
            abilities=dict.fromkeys(("generate", "score"), "causal.language_model:LanguageModel"),
        )
    },
    presets=PRESETS,
    generates=True,
)
