"""Writes a trained model as another code's checkpoint: weights, settings and vocabulary.

    python scripts/export_checkpoint.py --model_dir=runs/wt103 --format=huggingface --export_dir=exports/wt103

A Transformer-XL is loaded by `TransfoXLLMHeadModel.from_pretrained` (transformers up to 4.35). An XLNet is loaded by
`XLNetLMHeadModel`, or by the class of its head (transformers 4). scripts/import_checkpoint.py reads both.
"""

from absl import flags
from command_line import define_model_flags, given_model, run
from flag_help import require_flags

from txl_tf.settings.choices import EXPORT_FORMATS

FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", None, "a directory that scripts/train.py or scripts/import_checkpoint.py wrote")
flags.DEFINE_string("export_dir", None, "where config.json, model.safetensors and the vocabulary go; local or gs://")
flags.DEFINE_enum("format", "huggingface", EXPORT_FORMATS, "whose checkpoint to write")
require_flags("model_dir", "export_dir")
define_model_flags("checkpoint", "weights")


def main(_):
    from txl_tf.published.exporting import export_checkpoint
    from txl_tf.runs.model_dir import load_trained  # after the flags are parsed: TensorFlow takes seconds to load

    trained = load_trained(given_model(), FLAGS.weights, FLAGS.checkpoint)
    differences = export_checkpoint(trained, FLAGS.format, FLAGS.export_dir)
    print(f"step {trained.step} exported to {FLAGS.export_dir}")
    for difference in differences:
        print(f"different there: {difference}")


if __name__ == "__main__":
    run(main)
