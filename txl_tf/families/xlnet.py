"""XLNet's registration: pretraining, and the tasks of models with other heads.

TensorFlow loads when a method is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from txl_tf.families.base import Family, imported
from txl_tf.families.presets.recipes import RECIPES
from txl_tf.families.presets.xlnet import PRESETS
from txl_tf.models.xlnet.config import XLNetRunConfig
from txl_tf.tasks import TASKS
from txl_tf.tasks.base import Guide, Pretraining


class AnyTokens(Pretraining):
    """Predicting any tokens from the others, in random orders."""

    config = XLNetRunConfig
    guide = Guide(
        purpose="predicts any tokens of a text, in any order, from the others",
        commands='python scripts/fill.py --model_dir={dir} --text="A text with a ____ in it."\n'
        "python scripts/finetune.py --init={dir} --task=classification --train=TRAIN.tsv --dev=DEV.tsv "
        "--model_dir=runs/tuned",
        code="import txl_tf\n\nmodel = txl_tf.load({quoted})\n"
        'vectors = model.encode(["A text.", "Another one."]).pooled',
        limit="It fills blanks with likely words, which need not be true.",
    )
    abilities: ClassVar[Mapping[str, str]] = {
        "fill": "xlnet.fill_in:FillIn",
        "score": "xlnet.fill_in:FillIn",
        "encode": "xlnet.encoder:Encoder",
        "generate": "causal.left_to_right:LeftToRightXLNet",
    }

    model = imported("models.xlnet.model:XLNet")
    objective = imported("objectives.permutation_lm:PermutationLM")
    training_data = imported("data.xlnet.pairs:TrainingPairs")
    batch_spec = imported("objectives.permutation_lm:PermutationLM.batch_spec")
    scorer = imported("objectives.permutation_lm:PermutationScorer")
    evaluation_data = imported("data.xlnet.pairs:EvaluationPairs")
    fit_to_corpus = imported("models.xlnet.config:XLNetRunConfig.fit_to_corpus")
    operations = imported("objectives.flops:xlnet_step")
    attention = imported("objectives.permutation_lm:attention_view")


XLNET = Family(name="xlnet", title="XLNet", tasks=(AnyTokens(), *TASKS), presets=PRESETS, recipes=RECIPES)
