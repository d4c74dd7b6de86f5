"""The one place that lists model families. A family is added by one registration; other code looks families up here.

Functions that need TensorFlow import it when they are called, so that importing this module does not load it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from txl_tf.config import Config, parse_config
from txl_tf.errors import InputError
from txl_tf.models.preset import Preset
from txl_tf.models.transformer_xl.config import TransformerXLRunConfig
from txl_tf.models.transformer_xl.presets import PRESETS as TRANSFORMER_XL_PRESETS
from txl_tf.models.xlnet import head_config
from txl_tf.models.xlnet.config import XLNetRunConfig
from txl_tf.models.xlnet.presets import PRESETS as XLNET_PRESETS

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from txl_tf.data.manifest import Corpus
    from txl_tf.objectives.base import AttentionView, Objective, Scorer


class TrainingData(Protocol):
    """The batches of a run. An epoch has `epoch_steps` steps of `step_tokens` tokens; `unused` tokens are left over."""

    epoch_steps: int
    step_tokens: int
    unused: int

    def batches(self, step: int, *, host: int, num_hosts: int, replicas_per_host: int) -> tf.data.Dataset:
        """Batches without end, starting at a step: those of one host's replicas in turn."""


class EvaluationData(Protocol):
    """One pass over a split: `steps` batches of `lanes` lanes, with `targets` targets in total."""

    @property
    def lanes(self) -> int:
        """B."""

    @property
    def steps(self) -> int:
        """Batches in the pass."""

    @property
    def targets(self) -> int | None:
        """The total number of targets; None: known only after the pass."""

    def batches(self, *, host: int, num_hosts: int, replicas_per_host: int) -> tf.data.Dataset:
        """The batches of one host's replicas in turn."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Use:
    """What models of a family are used for. A Use that is not a Task is only imported and used from Python; a Task is
    also trained here.

    Attributes:
        config: the subclass of Config with the settings of a run.
        model: the settings' group "model" -> the model, with its weights created; None: the family's function.
    """

    config: type[Config]
    model: Callable[[Any], keras.Model] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(Use):
    """One thing that models of a family are trained for.

    Attributes:
        objective: (model, config) -> Objective.
        training_data: (corpus, config) -> TrainingData.
        scorer: (model, config, further options of the family) -> Scorer.
        evaluation_data: (corpus, split, config) -> EvaluationData.
        batch_spec: (config, lanes, training) -> nest of TensorSpecs: a batch for training, or for evaluation.
        fit_to_corpus: (config, corpus, names of settings that the user gave) -> config, with the settings that follow
            from the data.
        operations: config -> the operations of a training step over all replicas, for MFU; None: not counted.
        attention: (model, corpus, config) -> AttentionView, for TensorBoard; None: nothing is shown.
    """

    objective: Callable[[keras.Model, Any], Objective]
    training_data: Callable[[Corpus, Any], TrainingData]
    scorer: Callable[..., Scorer]
    evaluation_data: Callable[[Corpus, str, Any], EvaluationData]
    batch_spec: Callable[[Any, int, bool], Any]
    fit_to_corpus: Callable[[Any, Corpus, frozenset[str]], Any]
    operations: Callable[[Any], int] | None = None
    attention: Callable[[keras.Model, Corpus, Any], AttentionView] | None = None


@dataclasses.dataclass(frozen=True)
class Family:
    """A kind of model.

    Attributes:
        name: as in config.json.
        title: name for display.
        model: the settings' group "model" -> the model, with its weights created.
        tasks: what its models are used for, by name; empty if a model is only used from Python.
        presets: named configurations.
        generates: whether its models continue texts token by token (generate, score, export).
    """

    name: str
    title: str
    model: Callable[[Any], keras.Model]
    tasks: Mapping[str, Use]
    presets: Mapping[str, Preset] = dataclasses.field(default_factory=dict)
    generates: bool = False


def _transformer_xl(config: Any) -> keras.Model:
    from txl_tf.models.transformer_xl.model import TransformerXL

    return TransformerXL(config)


def _xlnet(config: Any) -> keras.Model:
    from txl_tf.models.xlnet.model import XLNet

    return XLNet(config)


def _xlnet_with_logits(config: Any) -> keras.Model:
    from txl_tf.models.xlnet.with_head import XLNetWithLogits

    return XLNetWithLogits(config)


def _xlnet_with_answers(config: Any) -> keras.Model:
    from txl_tf.models.xlnet.with_head import XLNetWithAnswers

    return XLNetWithAnswers(config)


def _causal_lm(model: Any, config: TransformerXLRunConfig) -> Objective:
    from txl_tf.objectives.causal_lm import CausalLM

    return CausalLM(model, config.objective)


def _training_lanes(corpus: Corpus, config: Config) -> TrainingData:
    from txl_tf.data.lanes import TrainingLanes

    return TrainingLanes(corpus, config.data, config.train.seed)


def _causal_scorer(model: Any, config: TransformerXLRunConfig, sliding_window: int = 0) -> Scorer:
    from txl_tf.objectives.causal_lm import CausalScorer

    return CausalScorer(model, *config.for_evaluation(), sliding_window)


def _evaluation_lanes(corpus: Corpus, split: str, config: TransformerXLRunConfig) -> EvaluationData:
    from txl_tf.data.lanes import EvaluationLanes

    return EvaluationLanes(corpus, split, config.eval.batch_size, config.eval.tgt_len)


def _segment_spec(config: TransformerXLRunConfig, lanes: int, training: bool) -> Any:
    import tensorflow as tf

    tokens = tf.TensorSpec([lanes, (config.data if training else config.eval).tgt_len], tf.int32)
    return tokens, tokens


def _fit_vocabulary(config: TransformerXLRunConfig, corpus: Corpus, given: frozenset[str]) -> TransformerXLRunConfig:
    if config.model.cutoffs and not corpus.cutoffs and "cutoffs" not in given:
        raise InputError(f"the preset has an adaptive softmax, and {corpus.data_dir} has no cutoffs: give --cutoffs")
    cutoffs = corpus.cutoffs if config.model.cutoffs else ()
    model = dataclasses.replace(config.model, vocab_size=corpus.vocab_size, cutoffs=cutoffs)
    return dataclasses.replace(config, model=model)


def _transformer_xl_operations(config: TransformerXLRunConfig) -> int:
    from txl_tf.models.transformer_xl.flops import training_flops

    tgt_len = config.data.tgt_len
    scored = tgt_len - tgt_len // 2 if config.objective.loss_positions == "half" else tgt_len
    return training_flops(config.model, config.data.batch_size, tgt_len, scored)


def _causal_attention(model: Any, corpus: Corpus, config: TransformerXLRunConfig) -> AttentionView:
    from txl_tf.objectives.causal_lm import attention_view

    return attention_view(model, corpus, config.data.tgt_len)


TRANSFORMER_XL = Family(
    name="transformer_xl",
    title="Transformer-XL",
    model=_transformer_xl,
    tasks={
        "causal_lm": Task(
            config=TransformerXLRunConfig,
            objective=_causal_lm,
            training_data=_training_lanes,
            scorer=_causal_scorer,
            evaluation_data=_evaluation_lanes,
            batch_spec=_segment_spec,
            fit_to_corpus=_fit_vocabulary,
            operations=_transformer_xl_operations,
            attention=_causal_attention,
        )
    },
    presets=TRANSFORMER_XL_PRESETS,
    generates=True,
)


def _permutation_lm(model: Any, config: XLNetRunConfig) -> Objective:
    from txl_tf.objectives.permutation_lm import PermutationLM

    return PermutationLM(model, config.objective, config.data.bi_data)


def _training_pairs(corpus: Corpus, config: XLNetRunConfig) -> TrainingData:
    from txl_tf.data.pairs import TrainingPairs

    # The second number makes these random numbers independent of those of dropout.
    return TrainingPairs(corpus, "train", config.data, config.model.reuse_len, config.objective, (config.train.seed, 1))


def _permutation_scorer(model: Any, config: XLNetRunConfig, **options: Any) -> Scorer:
    from txl_tf.objectives.permutation_lm import PermutationScorer

    if options:
        raise InputError(f"{', '.join(f'--{name}' for name in options)}: not for an XLNet; leave it away")
    return PermutationScorer(model, config.objective, config.data, config.eval)


def _evaluation_pairs(corpus: Corpus, split: str, config: XLNetRunConfig) -> EvaluationData:
    from txl_tf.data.pairs import EvaluationPairs, TrainingPairs

    data = dataclasses.replace(config.data, batch_size=config.eval.batch_size)
    pairs = TrainingPairs(corpus, split, data, config.model.reuse_len, config.objective, (config.eval.seed, 2))
    return EvaluationPairs(pairs, data.batch_size)


def _permutation_attention(model: Any, corpus: Corpus, config: XLNetRunConfig) -> AttentionView:
    import tensorflow as tf

    from txl_tf.objectives.permutation_lm import attention_view

    one_lane = config.replace(data={"bi_data": False}, eval={"batch_size": 1})
    count = -(-config.model.mem_len // config.model.reuse_len) + 1  # the last is read with a full memory
    batches = _evaluation_pairs(corpus, "valid", one_lane).batches(host=0, num_hosts=1, replicas_per_host=1).take(count)
    segments = tf.nest.map_structure(lambda *parts: tf.stack(parts), *batches)
    return attention_view(model, config.objective, config.data.tgt_len, segments)


def _pair_spec(config: XLNetRunConfig, lanes: int, training: bool) -> Any:
    from txl_tf.data.pairs import PermutationBatch

    return PermutationBatch.spec(lanes, config.data.tgt_len)


def _fit_special_tokens(config: XLNetRunConfig, corpus: Corpus, given: frozenset[str]) -> XLNetRunConfig:
    for name in ("sep", "cls"):
        corpus.vocabulary.special_token(name)
    return config.replace(model={"vocab_size": corpus.vocab_size})


def _xlnet_operations(config: XLNetRunConfig) -> int:
    from txl_tf.models.xlnet.flops import training_flops

    return training_flops(config.model, config.data.batch_size, config.data.tgt_len, config.objective.num_predict)


XLNET = Family(
    name="xlnet",
    title="XLNet",
    model=_xlnet,
    tasks={
        "permutation_lm": Task(
            config=XLNetRunConfig,
            objective=_permutation_lm,
            training_data=_training_pairs,
            scorer=_permutation_scorer,
            evaluation_data=_evaluation_pairs,
            batch_spec=_pair_spec,
            fit_to_corpus=_fit_special_tokens,
            operations=_xlnet_operations,
            attention=_permutation_attention,
        ),
        "classification": Use(config=head_config.XLNetClassificationConfig, model=_xlnet_with_logits),
        "regression": Use(config=head_config.XLNetRegressionConfig, model=_xlnet_with_logits),
        "multiple_choice": Use(config=head_config.XLNetMultipleChoiceConfig, model=_xlnet_with_logits),
        "answering": Use(config=head_config.XLNetAnsweringConfig, model=_xlnet_with_answers),
    },
    presets=XLNET_PRESETS,
)

_FAMILIES: dict[str, Family] = {}


def register(family: Family) -> None:
    """Adds a family.

    Raises:
        ValueError: one of its presets has the same name as another family's.
    """
    taken = set(presets()) & set(family.presets)
    if taken:
        raise ValueError(f"family {family.name}: preset names {sorted(taken)} are taken")
    _FAMILIES[family.name] = family


def presets() -> dict[str, Preset]:
    """All presets by name."""
    return {name: preset for family in _FAMILIES.values() for name, preset in family.presets.items()}


def family_of(config: Config) -> Family:
    """The family of a run's settings."""
    return _FAMILIES[config.family]


def task_of(config: Config) -> Task:
    """The Task of a run with these settings.

    Raises:
        InputError: models of this task are not trained or evaluated here.
    """
    family = _FAMILIES[config.family]
    task = family.tasks[config.task]
    if not isinstance(task, Task):
        raise InputError(
            f"a model of {family.title} for {config.task} is not trained or evaluated by this command: use it from "
            "Python (txl_tf.model_dir.load_trained)"
        )
    return task


def make_model(config: Config) -> keras.Model:
    """The model of a run with these settings, with its weights created."""
    family = _FAMILIES[config.family]
    make = family.tasks[config.task].model or family.model
    return make(config.model)


def run_configs() -> list[type[Config]]:
    """The settings of every task of every family that is trained."""
    return [task.config for family in _FAMILIES.values() for task in family.tasks.values() if isinstance(task, Task)]


def family_title(config_class: type[Config]) -> str:
    """The display name of the family that settings of this type belong to."""
    return _FAMILIES[config_class.family].title


def require_generation(config: Config, where: str) -> Any:
    """`config`, or InputError if its models do not continue texts token by token; `where` names the model's place."""
    if not family_of(config).generates:
        raise InputError(
            f"{where} holds an {family_of(config).title}, which does not continue texts: use scripts/fill.py, which "
            "fills blanks and, with --score, scores texts"
        )
    return config


def config_from_json(text: str, where: str = "config.json") -> Config:
    """The settings in the text of a config.json; missing settings have their defaults.

    Raises:
        InputError: not JSON, an unknown family, task, group or key, or a value of the wrong type; `where` names the
            place.
    """
    groups = parse_config(text, where)
    groups.pop("format")
    name = groups.pop("family", TRANSFORMER_XL.name)
    family = _FAMILIES.get(name)
    if family is None:
        raise InputError(f"{where} is of family {name!r}; known are {', '.join(_FAMILIES)}")
    if not family.tasks:
        raise InputError(f"{where} is of family {name!r}; no run of {family.title} can be started or read")
    task = groups.pop("task", next(iter(family.tasks)))
    if task not in family.tasks:
        raise InputError(f"{where} is of task {task!r}; {family.title} has {', '.join(family.tasks)}")
    return family.tasks[task].config.from_groups(groups, where)


register(TRANSFORMER_XL)
register(XLNET)
