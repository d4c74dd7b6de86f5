"""Describes a trained model: prints a model card and writes it into the model_dir, as README.md with a picture.

    python scripts/describe_model.py --model_dir=runs/demo
    python scripts/evaluate.py --model_dir=runs/demo --data_dir=data/python_stdlib --split=test > test.json
    python scripts/describe_model.py --model_dir=runs/demo --results=test.json

The card has the model's results, errors, uses, limits, learning curve, data, sizes and recipe, as far as the model_dir
has them. A later run replaces the card, unless it was changed by hand. --html=card.html also writes it as one page
for a browser.
"""

from absl import flags
from command_line import run
from flag_help import require_flags

FLAGS = flags.FLAGS
flags.DEFINE_string(
    "model_dir", None, "what scripts/train.py, finetune.py or import_checkpoint.py wrote; local or gs://"
)
flags.DEFINE_list("results", [], "files with the output of scripts/evaluate.py, or of predict.py --metrics, to add")
flags.DEFINE_bool("write", True, "write the card into the model_dir; --nowrite only prints it")
flags.DEFINE_string("html", None, "also write the card as one page of HTML, with its picture inside: a new file")
require_flags("model_dir")


def main(_):
    from txl_tf.runs import card_page, model_card  # after the flags are parsed: TensorFlow takes seconds to load
    from txl_tf.storage.files import require_new, write_result

    if FLAGS.html:
        require_new(FLAGS.html, "html")
    card = model_card.describe_model(FLAGS.model_dir, [model_card.read_results(path) for path in FLAGS.results])
    if FLAGS.write:
        model_card.write_card(FLAGS.model_dir, card)
    if FLAGS.html:
        write_result(FLAGS.html, card_page.page_of(card))
    print(card.text, end="")


if __name__ == "__main__":
    run(main)
