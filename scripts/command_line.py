"""Flags made from the settings dataclasses, and errors in one line, for scripts/ and evidence/."""

import functools
import os
import re
import signal
import sys

import flag_help
import start_up
from absl import app, flags, logging
from flag_help import place

from serving import terminal
from txl_tf import families
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.dataset_folders import local, part_files
from txl_tf.errors import InputError, one_line
from txl_tf.inference.causal import sampling_settings
from txl_tf.models.transformer_xl.config import EvalConfig, TransformerXLConfig
from txl_tf.settings.choices import CHECKPOINTS, DTYPES, OPS, QUANTIZE, STRATEGIES, WEIGHTS
from txl_tf.settings.groups import Group, Range, option_value, options
from txl_tf.storage.local_files import without_links_back

EMPTY_FLAGS = ("prompt", "text", "context", "beam_args", "warm_start", "cutoffs", "profile_steps")
"""Flags that may be given as --name= and nothing. Others must not: an empty path would be the working folder."""

flags.DEFINE_enum(
    "ops",
    None,
    OPS,
    "what computes a model. plain: each operation's formula; proven: on a GPU only what has run on one; fewer: fewer "
    "kernels on a GPU; fused: fewer, and attention by kernels of our own (needs the extra `gpu`) [proven; in "
    "training, as the run began]",
)


def run(main, check=None):
    """Runs main(argv). An input error becomes one line on stderr and exit status 1.

    If a file has several faults, each gets a line before it. `check`, if given, runs before TensorFlow is loaded, so
    that its errors come at once. -v=1 also shows tracebacks and libraries' messages (`terminal.divert_libraries`).
    Output is UTF-8 (`start_up.write_utf8`).
    """

    def guarded(argv):
        mendable = (InputError, OSError, MemoryError)
        try:
            check_flags(argv)
            flag_help.check_required()
            if check:
                check()
            if not wants_details():
                terminal.divert_libraries()
            import tensorflow as tf  # here, so that --help and wrong flags are answered at once

            mendable += (tf.errors.OpError,)
            if not flags.FLAGS["verbosity"].present:
                logging.set_verbosity(logging.WARNING)
            if not wants_details():
                tf.get_logger().setLevel("ERROR")  # its advice on tracing is for programmers
            start_up.raise_from_now_on()
            from txl_tf.ops import platform

            with platform.using(flags.FLAGS.ops or "proven"):
                status = main(argv)
            sys.stdout.flush()  # if the disk is full, this fails, and the results are lost
            return status
        except KeyboardInterrupt:
            return interrupted()
        except BrokenPipeError:
            print("error: standard output was closed: the rest of the results is lost", file=sys.stderr)
            return 1
        except mendable as error:
            if start_up.interrupts:
                return interrupted()
            if wants_details():
                raise
            for fault in getattr(error, "faults", ()):
                print(as_called(one_line(fault)), file=sys.stderr)
            no_memory = "there is not enough memory: " if isinstance(error, MemoryError) else ""
            print(f"error: {no_memory}{as_called(one_line(getattr(error, 'summary', error)))}", file=sys.stderr)
            return 1
        except Exception:
            if start_up.interrupts:
                return interrupted()
            raise
        finally:
            start_up.ignore_from_now_on()
            drop_unwritable_output()

    start_up.write_utf8()
    program = sys.modules["__main__"]
    program.__doc__ = as_called(program.__doc__)
    for flag in flags.FLAGS.get_key_flags_for_module(sys.argv[0]):
        flag.help = as_called(flag.help)
    try:
        app.run(guarded, utf8_arguments(), flags_parser=flag_help.parse)
    except BrokenPipeError:  # from --help, whose reader needed only its beginning
        drop_unwritable_output()
        sys.exit(1)
    except KeyboardInterrupt:  # it came just before or after `guarded` could answer it
        terminal.leave()


def interrupted():
    """Says that Ctrl-C ended the command; its exit status."""
    print("interrupted", file=sys.stderr)
    return 128 + signal.SIGINT


def as_called(text):
    """A text with "txl NAME" for "scripts/NAME.py" if the user called it so. None stays None (`python -OO`)."""
    if text is None:
        return None
    return re.sub(r"(python )?scripts/(\w+)\.py", r"txl \2", text) if sys.argv[0].startswith("txl ") else text


def utf8_arguments():
    """sys.argv, read as UTF-8 in every locale; ends the process if it is not UTF-8."""
    try:
        return [os.fsencode(argument).decode() for argument in sys.argv]
    except UnicodeDecodeError as error:
        sys.exit(f"error: the argument {error.object!r} is not UTF-8 text")


def check_flags(argv):
    """Raises InputError for arguments that are not flags, empty texts, and numbers that no command can use.

    Paths are resolved as the system does it (`without_links_back`).
    """
    if len(argv) > 1:
        raise InputError(f"unexpected argument {argv[1]!r}: flags are written --name=value")
    for flag in flags.FLAGS.get_key_flags_for_module(sys.argv[0]):
        if not flag.present:
            continue
        for value in flag.value if isinstance(flag.value, list) and flag.value else [flag.value]:
            if value in ("", []) and flag.name not in EMPTY_FLAGS:
                raise InputError(f"--{flag.name}= is empty: give a value, or omit the flag")
            if isinstance(value, int | float) and not isinstance(value, bool):
                Range().check(value, f"--{flag.name}={value}")
        if isinstance(flag.value, list):
            flag.value = [without_links_back(value) if isinstance(value, str) else value for value in flag.value]
        elif isinstance(flag.value, str):
            flag.value = without_links_back(flag.value)


def drop_unwritable_output():
    """Drops output that cannot be written, or the interpreter would fail once more when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def wants_details():
    """Whether -v=1 or more was given."""
    return flags.FLAGS["verbosity"].present and logging.get_verbosity() >= logging.INFO


def define_config_flags(config_class, prefix="", only=None, default=None):
    """Defines a flag --{prefix}{name} for each of a group's `options` (or those in `only`); unset flags are None.

    --help shows `default`: the values of an instance of config_class, or a text such as "the model_dir's".
    """
    for name, option in options(config_class).items():
        if only is None or name in only:
            told = option_value(default, name) if isinstance(default, Group) else default
            _define_flag(prefix + name, option, told)


_DEFINE = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string}


def _define_flag(name, option, default):
    """One flag of `define_config_flags`; another group's flag of the same name and type is the same flag."""
    if name in flags.FLAGS:
        return
    help_text = option.help + ("" if default is None else f" [{_as_flag(default)}]")
    if option.choices:
        flags.DEFINE_enum(name, None, option.choices, help_text)
    else:
        _DEFINE.get(option.kind, flags.DEFINE_list)(name, None, help_text)
    place(name, heading=option.heading, usual=option.usual)


def _as_flag(value):
    """A value as it is written in a flag."""
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return repr(value) if value == "" else str(value)


def given_flags(config_class, prefix="", only=None):
    """The flags of `define_config_flags` that the user gave: {name: value}, as `update` takes them."""
    values = {}
    for name, option in options(config_class).items():
        if (only is None or name in only) and (value := flags.FLAGS[prefix + name].value) is not None:
            values[name] = value if option.kind in _DEFINE else tuple(integers(prefix + name))
    return values


def integers(name):
    """The value of the list flag --{name} as integers, or InputError."""
    items = flags.FLAGS[name].value
    given = f"--{name}={','.join(map(str, items))}"
    try:
        numbers = [int(item) for item in items]
    except ValueError as error:
        raise InputError(f"{given} must be integers separated by commas") from error
    for number in numbers:
        Range().check(number, given)
    return numbers


REACH_FLAGS = {EvalConfig: ("mem_len", "clamp_len", "same_length"), TransformerXLConfig: ("conventions",)}
"""Settings of memory that can be changed after training."""


def define_reach_flags():
    """Defines the flags of REACH_FLAGS."""
    for config_class, names in REACH_FLAGS.items():
        define_config_flags(config_class, only=names, default="as in the model_dir's config.json")


def given_reach():
    """The REACH_FLAGS that were given: {field: value}, as `for_evaluation` and `LanguageModel.load` take them."""
    return {
        name: value
        for config_class, names in REACH_FLAGS.items()
        for name, value in given_flags(config_class, only=names).items()
    }


def define_sampling_flags():
    """A flag for every setting of sampling."""
    for setting in sampling_settings.SETTINGS:
        define = flags.DEFINE_integer if setting.kind is int else flags.DEFINE_float
        define(setting.name, setting.default, f"{setting.help} ({setting.range})")
        flags.register_validator(setting.name, functools.partial(_check_sampling, setting))
        place(setting.name)


def _check_sampling(setting, value):
    try:
        setting.check(value)
    except InputError as error:
        raise flags.ValidationError(str(error)) from error
    return True


def given_sampling():
    """The values of the flags of sampling: {name: value}, as `LanguageModel.generate` takes them."""
    return {name: flags.FLAGS[name].value for name in sampling_settings.names()}


def define_example_flags():
    """Defines the flags of commands that read labelled examples: those of Columns, and --dry_run."""
    define_config_flags(Columns, default=Columns())
    flags.DEFINE_bool("dry_run", False, "read the examples, say what was understood, and end: nothing is written")


def given_columns():
    """The Columns that the flags of a table give."""
    return Columns(**given_flags(Columns))


def given_model():
    """The model_dir that --model_dir names. A published model is imported first; then it is that import's model_dir."""
    from txl_tf.published.directly import usable  # TensorFlow takes seconds to load

    return usable(flags.FLAGS.model_dir)


def understood(task, paths, columns, labelled, to, tags=()):
    """The rows of the files of a task, by path; a line for each, written to `to`, says what it was taken for.

    TensorFlow is loaded only for remote files, which are left to the command itself, unless it is a --dry_run.
    """
    reads = families.task_of(families.tuned_configs()[task], families.FineTuning)
    found = {}
    for path in dict.fromkeys(paths):
        place = local(path)
        here = "://" not in place and (os.path.exists(place) or part_files(place))
        if here or flags.FLAGS.dry_run:  # what is not there is reported after the settings
            found[path] = reads.read(path, columns, labelled, tags)
            print(f"{path}: {found[path].understood}", file=to, flush=True)
            if flags.FLAGS.dry_run:
                for remark in getattr(found[path], "remarks", ()):
                    print(f"{path}: {remark}", file=to, flush=True)
    if flags.FLAGS.dry_run:
        sys.exit(0)
    return found


_OF_MODELS = {
    "checkpoint": (
        CHECKPOINTS,
        "the newest checkpoint, or the best on valid or dev during training [the newest; for a fine-tuned model that "
        "was evaluated, the best on dev]",
    ),
    "weights": (WEIGHTS, "the last weights, or their average over steps [the average if there is one]"),
    "dtype": (DTYPES, "Keras dtype policy of the computation [as in training]"),
    "quantize": (
        QUANTIZE,
        "round the weights of a Transformer-XL's layers and softmax to int8, with a scale for each output channel "
        "[not rounded]",
    ),
}


def define_model_flags(*names):
    """Defines these of the flags of programs that read a model_dir: checkpoint, weights, dtype, quantize."""
    for name in names:
        flags.DEFINE_enum(name, None, *_OF_MODELS[name])
    place(*names)


def given_precision():
    """The flags of precision, as `load_trained` and `LanguageModel.load` take them."""
    return {name: flags.FLAGS[name].value for name in ("dtype", "quantize")}


def define_strategy_flags(strategies=STRATEGIES):
    """Defines --tpu and --strategy, the arguments of `distribute.make_strategy`."""
    flags.DEFINE_string("tpu", None, "a TPU's name, or 'local' on a TPU VM")
    flags.DEFINE_enum("strategy", "auto", strategies, "how replicas are made")
    place("tpu", "strategy", heading="devices")
