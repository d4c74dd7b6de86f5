"""Exports a trained model as a SavedModel that plain TensorFlow and TensorFlow Serving load, tokenizer included.

    python scripts/export_savedmodel.py --model_dir=runs/demo --export_dir=exports/demo
    saved_model_cli show --all --dir=exports/demo

The README.md in the export says how to call the signatures: generate, score, initial_cache, step and others. An XLNet
also has encode and fill, a fine-tuned XLNet that of its task, such as classify. sampling.json describes the settings of
sampling. For a Transformer-XL the README.md also says what --nosame_length, which the export keeps, means for texts
that are read in pieces. An XLNet, which was not trained to continue texts, does so with the memory of --mem_len.

With --litert a Transformer-XL becomes model.tflite, a file for LiteRT (TensorFlow Lite), instead. It reads one token at
a time, on a phone or in any program. --quantize=int8 makes it a quarter as large. examples/generate_litert.py uses it.
"""

from absl import flags
from command_line import define_model_flags, define_reach_flags, given_model, given_precision, given_reach, run
from flag_help import require_flags

from txl_tf.errors import InputError
from txl_tf.storage.local_files import read_local
from txl_tf.storage.strict_json import parse_json

FIELDS = ("text", "text_b", "article", "question", "options", "context")
"""The names of the fields of the server's page."""
FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", None, "a directory that scripts/train.py or finetune.py wrote")
flags.DEFINE_string("export_dir", None, "where the SavedModel goes: a new directory")
flags.DEFINE_bool("jit_compile", True, "compile the inner loops with XLA where the SavedModel runs")
flags.DEFINE_string(
    "examples",
    None,
    "a file with inputs that the server's page offers: a text in each line, or JSON lines with text, text_b, article, "
    "question, options or context",
)
flags.DEFINE_bool(
    "litert", False, "write model.tflite for LiteRT, which reads one token at a time, in place of a SavedModel"
)
require_flags("model_dir", "export_dir")
define_model_flags("checkpoint", "dtype", "quantize")
define_reach_flags()


def main(_):
    check_litert()
    examples = given_examples()
    from txl_tf.runs.model_dir import load_trained  # after the flags: TensorFlow takes seconds to load
    from txl_tf.storage.literal_paths import has_pattern

    if has_pattern(FLAGS.export_dir) and not FLAGS.litert:
        raise InputError(
            f"--export_dir={FLAGS.export_dir}: TensorFlow, which loads the export, takes [, ], *, ? and \\ in a "
            "path for a pattern: give a path without them"
        )

    precision = given_precision() | ({"dtype": "float32"} if FLAGS.litert else {})
    trained = load_trained(given_model(), checkpoint=FLAGS.checkpoint, **precision)
    if FLAGS.litert:
        from txl_tf.inference.causal.litert import export_litert

        size = export_litert(trained, FLAGS.export_dir, **given_reach())
        files = f"model.tflite ({size / 1e6:.2f} MB), tokens.json, README.md"
        print(f"step {trained.step} exported to {FLAGS.export_dir}: {files}")
        return
    from txl_tf.inference.export import export_trained

    export_trained(trained, FLAGS.export_dir, FLAGS.jit_compile, examples, **given_reach())
    print(f"step {trained.step} exported to {FLAGS.export_dir}; its README.md describes the signatures")


def given_examples():
    """The inputs in the file of --examples; InputError if a line has none."""
    if not FLAGS.examples:
        return []
    found = []
    for number, line in enumerate(read_local(FLAGS.examples).decode("utf-8", "replace").splitlines(), 1):
        where = f"{FLAGS.examples}: line {number}"
        given = parse_json(line, where) if line.startswith("{") else {"text": line}
        if line.strip():
            found.append({name: given[name] for name in FIELDS if name in given})
            if not found[-1] or not all(map(is_text, found[-1].values())):
                raise InputError(f"{where} has no example: give a text, or texts named {', '.join(FIELDS)}")
    return found


def is_text(value):
    """Whether a value is a text, or a list of texts."""
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(one, str) for one in value))


def check_litert():
    """Raises InputError for flags that do not go with --litert."""
    if FLAGS.litert and FLAGS.dtype not in (None, "float32"):
        raise InputError(f"--dtype={FLAGS.dtype}: LiteRT computes in float32, or with --quantize=int8")
    if FLAGS.litert and FLAGS["jit_compile"].present:
        raise InputError("--jit_compile is for SavedModels, not for --litert")


if __name__ == "__main__":
    run(main)
