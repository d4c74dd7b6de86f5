"""Evaluates a trained model on a split, scores every token once, and prints one JSON line at the end.

    python scripts/evaluate.py --model_dir=runs/demo --data_dir=data/python_stdlib --split=test
    python scripts/evaluate.py --model_dir=runs/demo --text_file=any.txt

--text_file needs no corpus: the text is read in the model's vocabulary. The line then also has bytes and unknown_share,
the share of tokens that the vocabulary does not know. bits_per_byte compares models with different vocabularies. A
short text is read in fewer lanes than --batch_size, so that memory has an effect; the line has their number.
Other settings come from the model's config.json (its "eval" group). Memory can be longer than in training.
"""

import io
import sys

from absl import flags
from command_line import (
    define_config_flags,
    define_model_flags,
    define_strategy_flags,
    given_flags,
    given_model,
    given_precision,
    run,
)
from flag_help import require_flags
from run_flags import refuse_foreign_flags

from txl_tf import families
from txl_tf.errors import InputError
from txl_tf.settings.choices import ONE_PROCESS_STRATEGIES
from txl_tf.storage.strict_json import json_line

FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", None, "what scripts/train.py wrote, or a name: fairy_tales, or OWNER/NAME of the Hub")
flags.DEFINE_string("data_dir", None, "the corpus, as scripts/prepare_data.py wrote it")
flags.DEFINE_string("text_file", None, "a text file, UTF-8 or UTF-16, also with .gz, in place of a corpus")
flags.DEFINE_string("split", "test", "which split: train, valid or test")
flags.DEFINE_integer(
    "sliding_window",
    0,
    "without memory: compute a window of this many tokens again for each token, as the paper evaluates other "
    "Transformers; 0: evaluate with memory",
    lower_bound=0,
)
flags.DEFINE_string(
    "per_token_out",
    None,
    "a new file to write, one line per scored token: id, log-probability in nats and text, separated by tabs",
)
require_flags("model_dir")
define_strategy_flags(ONE_PROCESS_STRATEGIES)
define_model_flags("checkpoint", "dtype", "quantize", "weights")
OVERRIDES = {
    "eval": None,
    "model": ("conventions",),
    "objective": ("num_predict", "perm_size", "mask_alpha", "max_span"),
}
"""The settings of a run that can be changed for evaluation, by group; None: all settings of the group."""
for run_config in families.run_configs():
    for group, names in OVERRIDES.items():
        define_config_flags(run_config.groups()[group], only=names, default="as in the model_dir's config.json")


def check():
    """Checks the flags before TensorFlow is loaded."""
    if (FLAGS.data_dir is None) == (FLAGS.text_file is None):
        raise InputError("give either --data_dir, a corpus, or --text_file")
    if FLAGS.text_file and FLAGS["split"].present:
        raise InputError(f"--split={FLAGS.split} names a part of a corpus, and --text_file has no splits: omit it")


def main(_):
    from txl_tf.data.manifest import load_corpus  # after the flags are parsed: TensorFlow takes seconds to load
    from txl_tf.data.one_text import SPLIT, corpus_of_text
    from txl_tf.devices.distribute import make_strategy
    from txl_tf.inference.evaluate import Evaluator
    from txl_tf.progress import reported
    from txl_tf.runs.model_dir import load_trained
    from txl_tf.storage.files import require_new, write_result

    strategy = make_strategy(FLAGS.strategy, FLAGS.tpu)
    if FLAGS.per_token_out:
        require_new(FLAGS.per_token_out, "per_token_out")
    with strategy.scope():
        trained = load_trained(given_model(), FLAGS.weights, FLAGS.checkpoint, with_given_flags, **given_precision())
    options = {"sliding_window": FLAGS.sliding_window} if FLAGS.sliding_window else {}
    scored = []
    record = (lambda *found: scored.append(found)) if FLAGS.per_token_out else None

    def evaluate(config, corpus, split, where):
        evaluator = Evaluator(config, trained.model, corpus, split, strategy, **options)
        for note in filter(None, (evaluator.note, unknown_in(corpus, split, where))):
            print(note, file=sys.stderr)
        with reported("evaluating", " segments") as report:
            return evaluator(lambda done, steps, loss: report(done, steps, loss=loss), record)

    if FLAGS.text_file:
        with corpus_of_text(FLAGS.text_file, trained.vocabulary, trained.vocabulary_identity) as corpus:
            text = corpus.split(SPLIT)
            config = trained.config if FLAGS["batch_size"].present else in_fewer_lanes(trained.config, text.tokens)
            result = evaluate(config, corpus, SPLIT, FLAGS.text_file)
            result |= {"bytes": corpus.texts[SPLIT]["bytes"], "unknown_share": text.unknown_share}
            result |= {"text_file": FLAGS.text_file, "batch_size": config.eval.batch_size}
    else:
        corpus = load_corpus(FLAGS.data_dir)
        trained.require_vocabulary_of(corpus)
        result = evaluate(trained.config, corpus, FLAGS.split, f"the {FLAGS.split} text")
    print(json_line(result | {"step": trained.step, "weights": trained.weights}), end="", flush=True)
    for ids, log_probs in scored:
        write_result(FLAGS.per_token_out, tokens_table(trained.vocabulary, ids, log_probs))


UNKNOWN_IN_TEXT = ("ptb", "wt103", "wt2")
"""Corpora whose texts themselves have <unk> in the place of rare words."""


def unknown_in(corpus, split, where):
    """A line about the unknown tokens of a text called `where`; "": there are none."""
    tokens = corpus.split(split).tokens
    count = round(corpus.split(split).unknown_share * tokens)
    if not count:
        return ""
    spared = "" if corpus.dataset in UNKNOWN_IN_TEXT else " and need not spell them, so bits_per_byte is too low"
    return f"{count:,} of the {tokens:,} tokens of {where} are unknown: the model reads them all alike{spared}"


LANE = 20
"""How many times a lane of a text should be as long as memory and segment together."""


def in_fewer_lanes(config, tokens):
    """The settings with a batch_size with which the lanes of a text are long; even if two lanes share the text."""
    if not hasattr(config.eval, "mem_len"):
        return config  # a fine-tuned model, which is refused
    together = 2 if getattr(config.data, "bi_data", False) else 1
    reach = max(config.eval.mem_len, 0) + getattr(config.eval, "tgt_len", config.data.tgt_len)
    lanes = max(1, min(config.eval.batch_size // together, tokens // (LANE * reach)))
    return config.replace(eval={"batch_size": lanes * together})


def with_given_flags(config):
    """The settings of a run with those of OVERRIDES that were given as flags."""
    refuse_foreign_flags(config, OVERRIDES, prefixes={})
    groups = config.groups()
    return config.replace(**{group: given_flags(groups[group], only=only) for group, only in OVERRIDES.items()})


def tokens_table(vocabulary, ids, log_probs):
    """The content of --per_token_out: a line for each scored token, in the order of the text."""
    text = io.StringIO("id\tlog_prob\ttoken\n")  # a list of all lines would take much memory
    text.seek(0, io.SEEK_END)
    for token, log_prob in zip(ids, log_probs, strict=True):
        text.write(f"{token}\t{log_prob:.6f}\t{vocabulary.describe(token)}\n")
    return text.getvalue()


if __name__ == "__main__":
    run(main, check)
