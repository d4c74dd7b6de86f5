"""XLNet's registration: pretraining, and the tasks of models with other heads.

It names functions by text, so that TensorFlow loads only on use.
"""

from __future__ import annotations

from txl_tf.families.base import Family, Guide, Task, lazy
from txl_tf.families.presets.recipes import RECIPES
from txl_tf.families.presets.xlnet import PRESETS
from txl_tf.families.xlnet_heads import HEADS
from txl_tf.models.xlnet.config import XLNetRunConfig

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
            fit_to_corpus=XLNetRunConfig.fit_to_corpus,
            objective=lazy("objectives.permutation_lm:PermutationLM"),
            batch_spec=lazy("objectives.permutation_lm:PermutationLM.batch_spec"),
            training_data=lazy("data.xlnet.pairs:TrainingPairs"),
            scorer=lazy("objectives.permutation_lm:PermutationScorer"),
            evaluation_data=lazy("data.xlnet.pairs:EvaluationPairs"),
            operations=lazy("training.flops:xlnet_step"),
            attention=lazy("objectives.permutation_lm:attention_view"),
            guide=_GUIDE,
            abilities=dict.fromkeys(("fill", "score"), "xlnet.fill_in:FillIn")
            | {"encode": "xlnet.encoder:Encoder", "generate": "causal.left_to_right:Continuation"},
        ),
        **HEADS,
    },
    presets=PRESETS,
    recipes=RECIPES,
)
