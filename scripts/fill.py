"""Fills the blanks of a text with a trained XLNet, or scores the text.

    python scripts/fill.py --model_dir=runs/xlnet --text="The capital of France is ____ ." --top=5
    python scripts/fill.py --model_dir=runs/xlnet --text="She went ____*3 yesterday." --order=confident
    python scripts/fill.py --model_dir=runs/xlnet --text="The capital of France is Paris ." --score

A blank stands for one token of the vocabulary (a word, a piece of one, or a byte), and ____*3 for three of them. A
longer row of underscores is one blank, too. Prints a line for each filling, the likeliest first: its log-probability in
nats, a tab, the filled text. The log-probability is exact for --order, the order in which tokens are predicted, each
from the text and the tokens predicted before it.
--candidates=Men,Women scores these words in a text's only blank, without a search. A word of n pieces is scored as a
filling of ____*n: the sum over its pieces, each given the text and the pieces before it.
--score prints the pseudo-log-likelihood: the sum of each token's log-probability given all the others.
--json prints JSON instead: a line for each filling, with its tokens and their log-probabilities, or for each scored
text. With --text_file each line that is not empty is a separate text.
"""

import sys

from absl import flags
from command_line import define_model_flags, given_model, run
from flag_help import require_flags

from txl_tf.errors import InputError
from txl_tf.storage.strict_json import json_line

FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", None, "a directory with a trained or imported XLNet")
flags.DEFINE_string("text", None, "the text")
flags.DEFINE_string("text_file", None, "a UTF-8 file with one text per line, instead")
flags.DEFINE_string("context", "", "a text to read before each, as a separate document: helps with short texts")
flags.DEFINE_string("blank", "____", "how a blank is written in the text")
flags.DEFINE_string(
    "order",
    "left_to_right",
    "order in which the missing tokens are predicted: left_to_right, right_to_left, confident (always the one the "
    "model is surest of), or their numbers from 0 on, such as 2,0,1",
)
flags.DEFINE_integer("beam_size", 8, "fillings that are followed at a time; 1: greedy", lower_bound=1)
flags.DEFINE_integer("top", 5, "fillings to print, at most beam_size", lower_bound=1)
flags.DEFINE_list("candidates", None, "words to score in the blank, separated by commas, instead of searching")
flags.DEFINE_bool("free", False, "let any token fill a blank, even if it does not fit the spaces around it")
flags.DEFINE_bool("score", False, "score the text instead of filling it")
flags.DEFINE_bool("mark", False, "put [ and ] around fillings")
flags.DEFINE_bool("json", False, "print JSON lines")
flags.DEFINE_bool("jit_compile", False, "compile the model with XLA: pays off with many texts")
require_flags("model_dir")
define_model_flags("checkpoint")


def main(_):
    check_candidates()
    texts = read_texts()
    from txl_tf.inference.xlnet.fill_in import FillIn  # after the flags are parsed: TensorFlow takes seconds to load
    from txl_tf.progress import progress_bar

    model = FillIn.load(given_model(), FLAGS.checkpoint, marker=FLAGS.blank, jit_compile=FLAGS.jit_compile)
    with progress_bar("filling", len(texts), " texts", shown=not sys.stdout.isatty()) as bar:
        for text in texts:
            for line in scored(model, text) if FLAGS.score else filled(model, text):
                print(line, end="")
            bar.update()


def check_candidates():
    """Raises InputError for flags that do not go with --candidates."""
    given = [name for name in ("score", "free", "beam_size", "top") if FLAGS[name].present]
    if FLAGS.candidates is not None and given:
        raise InputError(f"--{given[0]} cannot be used with --candidates, which scores all of them")


def filled(model, text):
    """A line for each filling of a text."""
    candidates = FLAGS.candidates or []
    for filling in model.fill(
        text,
        order=FLAGS.order,
        beam_size=FLAGS.beam_size,
        top=len(candidates) or min(FLAGS.top, FLAGS.beam_size),
        context=FLAGS.context,
        free=FLAGS.free,
        candidates=candidates,
    ):
        if FLAGS.json:
            found = {"text": filling.text, "fillings": filling.pieces[1::2], "ids": filling.ids.tolist()}
            found |= {"log_probs": filling.log_probs.tolist(), "total": filling.total, "order": FLAGS.order}
            yield json_line(found)
        else:
            yield f"{filling.total:.4f}\t{filling.marked() if FLAGS.mark else filling.text}\n"


def scored(model, text):
    """The line of a text that is scored."""
    score = model.score(text, FLAGS.context)
    if FLAGS.json:
        found = {"text": text, "ids": score.ids.tolist(), "log_probs": score.log_probs.tolist(), "total": score.total}
        yield json_line(found)
    else:
        yield f"{score.total:.4f}\t{text}\n"


def read_texts():
    """The texts of --text or --text_file."""
    if (FLAGS.text is None) == (FLAGS.text_file is None):
        raise InputError("give the text with either --text or --text_file")
    if FLAGS.text is not None:
        return [FLAGS.text]
    from txl_tf.storage.files import read_texts

    texts = [line for line in read_texts(FLAGS.text_file) if line.strip()]
    if not texts:
        raise InputError(f"--text_file={FLAGS.text_file} has no text")
    return texts


if __name__ == "__main__":
    run(main)
