r"""Turns a published checkpoint into a model_dir for evaluate, generate, export and train (--warm_start).

python scripts/import_checkpoint.py --format=official_tf --source=pretrained_xl/tf_wt103/model --preset=wt103_large \
    --vocabulary=pretrained_xl/tf_wt103/data/cache.pkl --model_dir=runs/wt103_published
python scripts/import_checkpoint.py --format=huggingface --source=transfo-xl/transfo-xl-wt103 --preset=wt103_large \
    --model_dir=runs/wt103_huggingface
python scripts/import_checkpoint.py --format=official_xlnet --source=cased_L-12_H-768_A-12.zip \
    --model_dir=runs/xlnet_base_published

Nothing in a pickle is run. docs/reproduce.md has the addresses of the checkpoints and their published results.
"""

from absl import flags
from command_line import define_config_flags, given_flags, run
from flag_help import require_flags

from txl_tf import families
from txl_tf.counted import counted
from txl_tf.errors import InputError
from txl_tf.models.transformer_xl.config import EvalConfig, TransformerXLConfig
from txl_tf.models.xlnet.config import XLNetConfig, XLNetEvalConfig
from txl_tf.models.xlnet.head_config import XLNetLogitsConfig
from txl_tf.settings.choices import DATASETS, IMPORT_FORMATS
from txl_tf.settings.groups import options
from txl_tf.tasks.settings import ExamplesEvalConfig

OWN_SETTINGS = {
    TransformerXLConfig: ("cutoffs", "pre_lnorm", "conventions"),
    XLNetConfig: ("mem_len", "reuse_len", "clamp_len", "conventions"),
    XLNetLogitsConfig: ("summary_type",),
    EvalConfig: tuple(options(EvalConfig)),
    XLNetEvalConfig: tuple(options(XLNetEvalConfig)),
    ExamplesEvalConfig: tuple(options(ExamplesEvalConfig)),
}
"""The settings that the user can give, by group."""

FLAGS = flags.FLAGS
flags.DEFINE_enum(
    "format",
    None,
    IMPORT_FORMATS,
    "whose checkpoint: kimiyoung/transformer-xl's tf/ or pytorch/, transformers', or zihangdai/xlnet's",
)
flags.DEFINE_string(
    "source",
    None,
    "the checkpoint, local or gs://. official_tf: its prefix or directory. official_pytorch: model.pt or a state_dict. "
    "huggingface: the directory with config.json and model.safetensors, pytorch_model.bin or tf_model.h5, or a name in "
    "the Hub. official_xlnet: the zip, its directory or the checkpoint's prefix",
)
flags.DEFINE_string("model_dir", None, "where to write; local or gs://")
flags.DEFINE_enum(
    "preset",
    None,
    sorted(families.presets()),
    "the configuration that the checkpoint must agree with; gives the settings that the checkpoint does not have",
)
flags.DEFINE_string(
    "vocabulary",
    None,
    "vocab.txt, vocab.json, cache.pkl, vocab.pkl, vocab.bin or spiece.model [found beside the checkpoint]",
)
flags.DEFINE_bool("lower_case", None, "whether an XLNet's text is lower-cased [the tokenizer's settings, else not]")
flags.DEFINE_enum("dataset", None, DATASETS, "the corpus it was trained on [the preset's; an XLNet's: text]")
require_flags("format", "source", "model_dir")
for config_class, names in OWN_SETTINGS.items():
    define_config_flags(config_class, only=names)


def given(config_class):
    """The settings of a group that were given as flags."""
    names = options(config_class)
    values = {}
    for own, settable in OWN_SETTINGS.items():
        if issubclass(config_class, own):
            values |= given_flags(own, only=[name for name in settable if name in names])
    return values


def settings_for(config):
    """The settings that were given for a run of type `config`: of the model, and of evaluation.

    Raises InputError for a setting that such a run does not have.
    """
    groups = config.groups()
    model, evaluation = given(groups["model"]), given(groups["eval"])
    everything = {name for own, names in OWN_SETTINGS.items() for name in given_flags(own, only=names)}
    if unknown := sorted(everything - set(model) - set(evaluation)):
        title = families.family_of(config).title
        raise InputError(f"--{unknown[0]} is not a setting of an imported {title}: omit it")
    return model, evaluation


def main(_):
    from txl_tf.published import importing  # after the flags are parsed: TensorFlow takes seconds to load

    preset = families.presets()[FLAGS.preset] if FLAGS.preset else None
    checkpoint = importing.open_checkpoint(FLAGS.format, FLAGS.source)
    model, evaluation = settings_for(checkpoint.config)
    dataset = FLAGS.dataset or (preset.dataset if preset else checkpoint.dataset)
    if dataset is None:
        raise InputError("the corpus that the checkpoint was trained on is not known: give --preset or --dataset")
    options = {} if FLAGS.lower_case is None else {"lower_case": FLAGS.lower_case}
    vocabulary, path = importing.vocabulary_of(checkpoint, dataset, FLAGS.vocabulary, options)
    settings = {"dataset": dataset, "preset": preset, "model": model, "evaluation": evaluation}
    config, lacking = importing.import_checkpoint(checkpoint, vocabulary, FLAGS.model_dir, **settings)
    tensors = f"{len(checkpoint.file.shapes)} tensors of {checkpoint.file.path}"
    print(f"{tensors}, vocabulary {checkpoint.shown(path)}: {FLAGS.model_dir}")
    for line in DESCRIPTIONS[config.family](config):
        print(line)
    for note in checkpoint.notes:
        print(f"different here: {note}")
    for name in checkpoint.unstated:
        if name not in model:
            print(f"config.json does not state {name}: {getattr(config.model, name)} is used; --{name} sets another")
    if checkpoint.labels:
        print(f"classes: {', '.join(checkpoint.labels[:10])}{', ..' if len(checkpoint.labels) > 10 else ''}")
    if lacking:
        print(f"not in the checkpoint, so newly initialised: {', '.join(lacking)}")


def describe_transformer_xl(config):
    model, reach = config.model, config.for_evaluation()[1]
    return (
        f"{counted(model.n_layer, 'layer')}, d_model {model.d_model}, {model.vocab_size:,} tokens, "
        f"cutoffs {list(model.cutoffs)}",
        f"evaluation will use mem_len {reach.mem_len}, clamp_len {reach.clamp_len}, same_length {reach.same_length} "
        f"({reach.same_length_window}), mem_init {reach.mem_init}",
    )


def describe_xlnet(config):
    model, summary = config.model, getattr(config.model, "summary_type", None)
    padded = (
        f"summary_type={summary} depends on padding: here texts are padded on the left to {config.data.tgt_len} tokens"
    )
    return (
        f"{counted(model.n_layer, 'layer')}, d_model {model.d_model}, {model.vocab_size:,} tokens, for {config.task}",
        f"{model.activation}, layer_norm_epsilon {model.layer_norm_epsilon:g}, mem_len {model.mem_len}, reuse_len "
        f"{model.reuse_len}, clamp_len {model.clamp_len}, mem_init {model.mem_init}",
        *([padded] if summary in ("mean", "first") else []),
    )


DESCRIPTIONS = {"transformer_xl": describe_transformer_xl, "xlnet": describe_xlnet}
"""Functions that return lines about an imported run, by family."""


if __name__ == "__main__":
    run(main)
