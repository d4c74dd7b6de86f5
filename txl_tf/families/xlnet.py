"""XLNet's registration: pretraining, and the tasks of models with other heads.

TensorFlow loads when a method is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from txl_tf.families.base import Family
from txl_tf.families.presets.recipes import RECIPES
from txl_tf.families.presets.xlnet import PRESETS
from txl_tf.models.xlnet.config import XLNetRunConfig
from txl_tf.tasks import TASKS
from txl_tf.tasks.base import Guide, Pretraining

if TYPE_CHECKING:
    import keras

    from txl_tf.data.lanes import EvaluationData, TrainingData
    from txl_tf.data.manifest import Corpus
    from txl_tf.objectives.base import AttentionView, Objective, Scorer


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

    def model(self, settings: Any) -> keras.Model:
        from txl_tf.models.xlnet.model import XLNet

        return XLNet(settings)

    def objective(self, model: Any, config: Any) -> Objective:
        from txl_tf.objectives.permutation_lm import PermutationLM

        return PermutationLM(model, config)

    def training_data(self, corpus: Any, config: Any) -> TrainingData:
        from txl_tf.data.xlnet.pairs import TrainingPairs

        return TrainingPairs(corpus, config)

    def batch_spec(self, config: Any, lanes: int, training: bool) -> Any:
        from txl_tf.objectives.permutation_lm import PermutationLM

        return PermutationLM.batch_spec(config, lanes, training)

    def scorer(self, model: Any, config: Any, **options: Any) -> Scorer:
        from txl_tf.objectives.permutation_lm import PermutationScorer

        return PermutationScorer(model, config, **options)

    def evaluation_data(self, corpus: Corpus, split: str, config: Any, **options: Any) -> EvaluationData:
        from txl_tf.data.xlnet.pairs import EvaluationPairs

        return EvaluationPairs(corpus, split, config, **options)

    def fit_to_corpus(self, config: Any, corpus: Corpus, given: Mapping[str, Mapping[str, Any]]) -> Any:
        return XLNetRunConfig.fit_to_corpus(config, corpus, given)

    def operations(self, config: Any) -> int:
        from txl_tf.objectives.flops import xlnet_step

        return xlnet_step(config)

    def attention(self, model: Any, corpus: Corpus, config: Any) -> AttentionView | None:
        from txl_tf.objectives.permutation_lm import attention_view

        return attention_view(model, corpus, config)


XLNET = Family(name="xlnet", title="XLNet", tasks=(AnyTokens(), *TASKS), presets=PRESETS, recipes=RECIPES)
