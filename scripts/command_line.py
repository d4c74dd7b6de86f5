"""What scripts/, bench/ and tpu/ share: flags made from the settings dataclasses, and errors in one line."""

import contextlib
import dataclasses
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow loads

from absl import app, flags, logging

from txl_tf.choices import CHECKPOINTS, STRATEGIES, WEIGHTS
from txl_tf.config import Config, EvalConfig, ModelConfig, field_types, update
from txl_tf.errors import InputError, one_line


def run(main):
    """Runs main(argv). An input error becomes one line on stderr and exit status 1; -v=1 also shows the traceback."""

    def guarded(argv):
        with quiet_start():
            import tensorflow as tf  # here, so that --help and wrong flags are answered at once
            import tensorflow_text  # noqa: F401 (writes messages when it loads, as TensorFlow does)

            tf.config.list_physical_devices()

        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)
        try:
            if len(argv) > 1:
                raise InputError(f"unexpected argument {argv[1]!r}: flags are written --name=value")
            return main(argv)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        except (InputError, OSError, tf.errors.OpError) as error:
            if wants_details():
                raise
            print(f"error: {one_line(error)}", file=sys.stderr)
            return 1

    app.run(guarded)


def wants_details():
    """Whether -v=1 or more was given."""
    return flags.FLAGS["verbosity"].present and logging.get_verbosity() >= logging.INFO


@contextlib.contextmanager
def quiet_start():
    """Hides the messages of TensorFlow's libraries while they load, unless -v=1 was given.

    They write a dozen lines to stderr, about missing GPUs and the like, before any log level applies.
    """
    if wants_details():
        yield
        return
    sys.stderr.flush()
    terminal, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nothing)


def define_config_flags(config_class, prefix="", only=None):
    """Defines a flag --{prefix}{field} for every field (or those in `only`); unset flags are None."""
    kinds = field_types(config_class)
    for field in dataclasses.fields(config_class):
        if only is not None and field.name not in only:
            continue
        name, kind, choices = prefix + field.name, kinds[field.name], field.metadata["choices"]
        help_text = f"{field.metadata['help']} [{field.default!r} unless the preset says otherwise]"
        if choices:
            flags.DEFINE_enum(name, None, choices, help_text)
        elif kind is bool:
            flags.DEFINE_bool(name, None, help_text)
        elif kind is int:
            flags.DEFINE_integer(name, None, help_text)
        elif kind is float:
            flags.DEFINE_float(name, None, help_text)
        elif kind is str:
            flags.DEFINE_string(name, None, help_text)
        else:
            flags.DEFINE_list(name, None, help_text)
        _show_in_help(name)


def given_flags(config_class, prefix="", only=None):
    """The flags of `define_config_flags` that the user gave: {field: value}."""
    values = {}
    for name, kind in field_types(config_class).items():
        if only is not None and name not in only:
            continue
        value = flags.FLAGS[prefix + name].value
        if value is None:
            continue
        if kind not in (bool, int, float, str):
            value = tuple(integers(prefix + name))
        values[name] = value
    return values


def integers(name):
    """The value of the list flag --{name} as integers, or InputError."""
    items = flags.FLAGS[name].value
    try:
        return [int(item) for item in items]
    except ValueError as error:
        raise InputError(f"--{name}={','.join(items)} must be integers separated by commas") from error


REACH_FLAGS = {EvalConfig: ("mem_len", "clamp_len", "same_length"), ModelConfig: ("mem_init",)}
"""Settings of memory that can be changed after training."""


def define_reach_flags():
    """Defines the flags of REACH_FLAGS."""
    for config_class, names in REACH_FLAGS.items():
        define_config_flags(config_class, only=names)


def given_reach():
    """The flags of `define_reach_flags` that the user gave: {field: value}, for `Config.for_evaluation`."""
    return {
        name: value
        for config_class, names in REACH_FLAGS.items()
        for name, value in given_flags(config_class, only=names).items()
    }


def define_checkpoint_flag():
    """Defines --checkpoint, for programs that read a model_dir."""
    flags.DEFINE_enum(
        "checkpoint", CHECKPOINTS[0], CHECKPOINTS, "the newest checkpoint, or the best on valid during training"
    )
    _show_in_help("checkpoint")


def define_weights_flag():
    """Defines --weights, for programs that read a model_dir."""
    flags.DEFINE_enum(
        "weights", None, WEIGHTS, "the last weights, or their average over steps [the average if there is one]"
    )
    _show_in_help("weights")


def define_strategy_flags(strategies=STRATEGIES):
    """Defines --tpu and --strategy, the arguments of `distribute.make_strategy`."""
    flags.DEFINE_string("tpu", None, "a TPU's name, or 'local' on a TPU VM")
    flags.DEFINE_enum("strategy", "auto", strategies, "how replicas are made")
    _show_in_help("tpu", "strategy")


def _show_in_help(*names):
    """Makes --help list flags that are defined in this module among those of the program."""
    for name in names:
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[name])


GROUP_PREFIXES = {"model": "", "data": "", "train": "", "eval": "eval_"}
"""Prefix of the flags of each group of `Config`."""


def define_all_config_flags():
    """Defines a flag for every setting of `Config`."""
    for field in dataclasses.fields(Config):
        define_config_flags(field.type, GROUP_PREFIXES[field.name])


def override(config):
    """`config` with the values of all flags that the user gave."""
    groups = {
        field.name: update(getattr(config, field.name), given_flags(field.type, GROUP_PREFIXES[field.name]))
        for field in dataclasses.fields(Config)
    }
    return Config(**groups)
