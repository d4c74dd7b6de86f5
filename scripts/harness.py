"""Evaluates a Transformer-XL with EleutherAI's lm-evaluation-harness, on any of its tasks or on one's own.

    python scripts/harness.py --model_dir=runs/wt103 --tasks=lambada_openai,wikitext,hellaswag
    python scripts/harness.py --export_dir=exports/wt103 --tasks=mine --include_path=my_tasks --output_path=results

Takes the flags of `lm_eval run`, too, except --model, --model_args and --device; `lm_eval run --help` lists them.
--batch_size is a number, 16 unless given, and changes no result. Documents of any length are read whole, with the
model's memory, and contexts that several requests share are read once.
If the vocabulary does not know a word, it counts as <unk>, which flatters the perplexity: a line on standard error says
how often.
"""

import argparse
import contextlib
import importlib.util
import logging
import sys

from absl import flags
from command_line import define_config_flags, define_model_flags, given_flags, given_model, given_precision, run
from flag_help import HELP, HELPFULL

from txl_tf.errors import InputError, one_line
from txl_tf.models.transformer_xl.config import EvalConfig

OF_MODEL_DIR = ("checkpoint", "weights", "dtype", "quantize", "mem_len", "clamp_len", "same_length")
FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", None, "a directory that scripts/train.py wrote")
flags.DEFINE_string("export_dir", None, "in place of model_dir: a SavedModel that scripts/export_savedmodel.py wrote")
define_model_flags(*OF_MODEL_DIR[:4])
define_config_flags(EvalConfig, only=OF_MODEL_DIR[4:], default="as in the model_dir's config.json")

theirs = []
"""The arguments for lm_eval."""


def divided(argv):
    """The program with its own arguments, and those for lm_eval. A word belongs to the flag before it."""
    own, others = argv[:1], []
    place = own
    for argument in argv[1:]:
        if argument.startswith("-"):
            name = argument.lstrip("-").partition("=")[0]
            mine = argument in (*HELP, *HELPFULL) or {name, name.removeprefix("no")} & set(FLAGS)
            place = own if mine else others
        place.append(argument)
    return own, others


def check():
    """Checks the flags, also those of lm_eval, before TensorFlow is loaded."""
    if (FLAGS.model_dir is None) == (FLAGS.export_dir is None):
        raise InputError("give either --model_dir or --export_dir, a SavedModel")
    for name in OF_MODEL_DIR if FLAGS.export_dir else ():
        if FLAGS[name].present:
            raise InputError(f"--{name} is for a --model_dir; an export is used as it is: omit it")
    if importlib.util.find_spec("lm_eval") is None:
        raise InputError("the package lm_eval is missing: run python -m pip install 'txl_tf[harness]'")
    logging.getLogger("datasets").setLevel(logging.WARNING)
    from lm_eval.config.evaluate_config import EvaluatorConfig

    with in_one_line():
        config = EvaluatorConfig.from_cli(parsed())
        if not config.tasks:
            raise InputError("give --tasks: names of tasks, separated by commas; `lm_eval ls tasks` lists them")
        config.process_tasks()


def parsed():
    """The arguments for lm_eval as its own command reads them."""
    from lm_eval._cli.run import Run

    commands = argparse.ArgumentParser().add_subparsers()
    Run.create(commands)
    parser = commands.choices["run"]
    parser.error = refuse
    args = parser.parse_args(theirs)
    for name in ("model", "model_args", "device"):
        if getattr(args, name, None):
            refuse(f"--{name} is not for this command, which evaluates --model_dir or --export_dir: omit it")
    args.batch_size = getattr(args, "batch_size", "16")
    if not args.batch_size.isdecimal() or not int(args.batch_size):
        refuse(f"--batch_size={args.batch_size} must be a number from 1 on")
    args.batch_size = int(args.batch_size)
    return args


def refuse(message):
    raise InputError(f"lm_eval: {message}")


@contextlib.contextmanager
def in_one_line():
    """Raises InputError for what lm_eval raises."""
    try:
        yield
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"lm_eval: {one_line(error)} ({type(error).__name__})") from error


def main(_):
    from lm_eval.utils import setup_logging

    import txl_tf
    from txl_tf.harness import HarnessModel

    setup_logging(logging.WARNING)
    args = parsed()
    if FLAGS.export_dir:
        model = HarnessModel.of_export(FLAGS.export_dir, args.batch_size)
    else:
        given = given_flags(EvalConfig, only=OF_MODEL_DIR[4:])
        loaded = txl_tf.load(given_model(), FLAGS.checkpoint, FLAGS.weights, **given_precision(), **given)
        model = HarnessModel.of(loaded, args.batch_size)
    args.model, args.model_args = model, {"pretrained": model.about["pretrained"]}
    with in_one_line():
        args.func(args)
    if model.note:
        print(model.note, file=sys.stderr)


if __name__ == "__main__":
    sys.argv, theirs = divided(sys.argv)
    run(main, check)
