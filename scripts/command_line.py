"""What every script shares: flags made from the settings dataclasses, and errors in one line. Not a script."""

import contextlib
import dataclasses
import functools
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow loads

from absl import app, flags, logging

from txl_tf.config import Config, EvalConfig, ModelConfig, field_types, update
from txl_tf.errors import InputError
from txl_tf.inference import samplers


def run(main):
    """Runs main(argv); input errors become one line on stderr and status 1, with a traceback only under -v=1."""

    def guarded(argv):
        with quiet_start():
            import tensorflow as tf  # here, so that --help and wrong flags answer at once
            import tensorflow_text  # noqa: F401 (greets like TensorFlow, whoever imports it later)

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
            reason = error.message if isinstance(error, tf.errors.OpError) else str(error)
            print("error: " + " ".join(reason.split()), file=sys.stderr)
            return 1

    app.run(guarded)


def wants_details():
    """Whether -v=1 or more was given."""
    return flags.FLAGS["verbosity"].present and logging.get_verbosity() >= logging.INFO


@contextlib.contextmanager
def quiet_start():
    """Keeps what TensorFlow's libraries say while they load off the terminal, unless -v=1 was given.

    They write a dozen lines to stderr, of GPUs that are not there among other things, before any log level counts.
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
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[name])  # so that --help shows it


def given_flags(config_class, prefix="", only=None):
    """The flags of `define_config_flags` that were given: {field: value}."""
    values = {}
    for name, kind in field_types(config_class).items():
        if only is not None and name not in only:
            continue
        value = flags.FLAGS[prefix + name].value
        if value is None:
            continue
        if kind not in (bool, int, float, str):
            try:
                value = tuple(int(item) for item in value)
            except ValueError as error:
                raise InputError(f"--{prefix}{name}={','.join(value)} must be integers separated by commas") from error
        values[name] = value
    return values


REACH_FLAGS = {EvalConfig: ("mem_len", "clamp_len", "same_length"), ModelConfig: ("mem_init",)}
"""The settings that say how far a trained model reaches back: no retraining needed."""


def define_reach_flags():
    """The flags of REACH_FLAGS."""
    for config_class, names in REACH_FLAGS.items():
        define_config_flags(config_class, only=names)


def given_reach():
    """Those that were given: {field: value}, as `Config.for_evaluation` and `LanguageModel.load` take them."""
    return {
        name: value
        for config_class, names in REACH_FLAGS.items()
        for name, value in given_flags(config_class, only=names).items()
    }


def define_sampling_flags():
    """A flag for every setting of sampling."""
    for setting in samplers.SETTINGS:
        define = flags.DEFINE_integer if setting.kind is int else flags.DEFINE_float
        define(setting.name, setting.default, f"{setting.help} ({setting.range})")
        flags.register_validator(setting.name, functools.partial(_check_sampling, setting))
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[setting.name])


def _check_sampling(setting, value):
    try:
        setting.check(value)
    except InputError as error:
        raise flags.ValidationError(str(error)) from error
    return True


def given_sampling():
    """The values of those flags: {name: value}, as `LanguageModel.generate` takes them."""
    return {name: flags.FLAGS[name].value for name in samplers.names()}


def define_checkpoint_flag():
    """--checkpoint, for what reads a model_dir."""
    flags.DEFINE_enum(
        "checkpoint", "latest", ["latest", "best"], "the newest checkpoint, or the best on valid during training"
    )
    flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS["checkpoint"])


GROUP_PREFIXES = {"model": "", "data": "", "train": "", "eval": "eval_"}
"""Prefix of the flags of each group of `Config`."""


def define_all_config_flags():
    """A flag for every setting of `Config`."""
    for field in dataclasses.fields(Config):
        define_config_flags(field.type, GROUP_PREFIXES[field.name])


def override(config):
    """`config` with every flag that was given."""
    groups = {
        field.name: update(getattr(config, field.name), given_flags(field.type, GROUP_PREFIXES[field.name]))
        for field in dataclasses.fields(Config)
    }
    return Config(**groups)
