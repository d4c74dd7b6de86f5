r"""Turns a published checkpoint into a model_dir for evaluate, generate, export and train (--warm_start).

python scripts/import_checkpoint.py --format=official_tf --source=pretrained_xl/tf_wt103/model --preset=wt103_large \
    --vocabulary=pretrained_xl/tf_wt103/data/cache.pkl --model_dir=runs/wt103_published
python scripts/import_checkpoint.py --format=huggingface --source=transfo-xl-wt103 --preset=wt103_large \
    --model_dir=runs/wt103_huggingface

Nothing in a pickle is run. docs/reproduce.md has the addresses of the checkpoints and their published results.
"""

from absl import flags
from command_line import define_config_flags, given_flags, run

from txl_tf.choices import DATASETS, IMPORT_FORMATS
from txl_tf.errors import InputError
from txl_tf.models.transformer_xl.config import EvalConfig, TransformerXLConfig
from txl_tf.models.transformer_xl.presets import PRESETS

OWN_SETTINGS = ("cutoffs", "pre_lnorm", "mem_init")

FLAGS = flags.FLAGS
flags.DEFINE_enum(
    "format", None, IMPORT_FORMATS, "whose checkpoint: kimiyoung/transformer-xl's tf/ or pytorch/, or transformers'"
)
flags.DEFINE_string(
    "source",
    None,
    "official_tf: the checkpoint's prefix or directory; official_pytorch: model.pt or a state_dict; huggingface: the "
    "directory with config.json and model.safetensors or pytorch_model.bin; local or gs://",
)
flags.DEFINE_string("model_dir", None, "where to write; local or gs://")
flags.DEFINE_enum(
    "preset",
    None,
    sorted(PRESETS),
    "the configuration that the checkpoint must agree with; sets what the checkpoint does not tell",
)
flags.DEFINE_string(
    "vocabulary", None, "vocab.txt, vocab.json, cache.pkl, vocab.pkl or vocab.bin [found beside the checkpoint]"
)
flags.DEFINE_enum("dataset", None, DATASETS, "the corpus it was trained on [the preset's]")
flags.mark_flags_as_required(["format", "source", "model_dir"])
define_config_flags(TransformerXLConfig, only=OWN_SETTINGS)
define_config_flags(EvalConfig)


def main(argv):
    del argv
    from txl_tf.published.importing import import_checkpoint, open_checkpoint  # TensorFlow takes seconds to load
    from txl_tf.published.vocabularies import find_vocabulary, read_vocabulary

    preset = PRESETS[FLAGS.preset] if FLAGS.preset else None
    dataset = FLAGS.dataset or (preset.dataset if preset else None)
    if dataset is None:
        raise InputError("the corpus that the checkpoint was trained on is not known: give --preset or --dataset")
    path = FLAGS.vocabulary or find_vocabulary(FLAGS.source)
    if path is None:
        raise InputError(f"there is no vocabulary beside {FLAGS.source}: give --vocabulary")
    checkpoint = open_checkpoint(FLAGS.format, FLAGS.source)
    config = import_checkpoint(
        checkpoint,
        read_vocabulary(path, dataset),
        FLAGS.model_dir,
        dataset=dataset,
        preset=preset,
        model=given_flags(TransformerXLConfig, only=OWN_SETTINGS),
        evaluation=given_flags(EvalConfig),
    )
    model, reach = config.model, config.for_evaluation()[1]
    print(f"{len(checkpoint.file.shapes)} tensors of {checkpoint.file.path}, vocabulary {path}: {FLAGS.model_dir}")
    print(
        f"{model.n_layer} layers, d_model {model.d_model}, {model.vocab_size:,} tokens, cutoffs {list(model.cutoffs)}"
    )
    print(
        f"evaluation will use mem_len {reach.mem_len}, clamp_len {reach.clamp_len}, same_length {reach.same_length} "
        f"({reach.same_length_window}), mem_init {reach.mem_init}"
    )


if __name__ == "__main__":
    run(main)
