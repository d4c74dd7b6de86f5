"""The flags of all settings of a run: --preset, one for each usual setting, and --set for the others."""

import re
import sys
import types

import flag_help
from absl import flags
from command_line import define_config_flags, given_flags
from flag_help import place

from txl_tf import families
from txl_tf.errors import InputError
from txl_tf.settings.groups import options
from txl_tf.settings.run import GROUP_PREFIXES


def own_names(config_class):
    """The options of a group that have a separate flag."""
    return [name for name, option in options(config_class).items() if option.own]


def shared_names(config_class, fixed=types.MappingProxyType({})):
    """The settings of a Config that --set sets, without those in `fixed`: {NAME: (group, field, Option)}."""
    return {
        GROUP_PREFIXES.get(group, "") + name: (group, name, option)
        for group, kind in config_class.groups().items()
        for name, option in options(kind).items()
        if not (option.own or name in fixed.get(group, ()))
    }


def define_set_flag(configs, fixed=types.MappingProxyType({})):
    """Defines --set, for settings of these types of Config that have no separate flag, except those in `fixed`."""
    about = {name: option.help for config in configs for name, (_, _, option) in shared_names(config, fixed).items()}
    flags.DEFINE_multi_string(
        "set",
        None,
        "NAME=VALUE, a setting without a separate flag; may be given several times. "
        + "; ".join(f"{name}: {text}" for name, text in sorted(about.items())),
    )
    place("set", usual=False)
    flag_help.shared.extend(about)


def given_by_set(config_class, fixed=types.MappingProxyType({})):
    """The settings that --set gives: {group: {field: value}}.

    Raises InputError for a name that it does not set, or a value of another type.
    """
    found, known = {}, shared_names(config_class, fixed)
    for given in flags.FLAGS.set or ():
        name, _, text = given.partition("=")
        if name not in known:
            raise InputError(f"--set={given}: {name!r} is not among {', '.join(sorted(known))}")
        group, field, option = known[name]
        try:
            found.setdefault(group, {})[field] = _READ[option.kind](text)
        except (ValueError, KeyError) as error:
            raise InputError(f"--set={given}: {text!r} is not {_KINDS[option.kind]}") from error
    return found


_READ = {bool: {"true": True, "false": False}.__getitem__, int: int, float: float, str: str}
_KINDS = {bool: "true or false", int: "an integer", float: "a number"}


def define_preset_flags():
    """Defines --preset, and flags for all settings.

    With --preset on the command line, the flags are the settings of its family, and --help shows its values. Without
    it, they are the settings of all families.
    """
    names = sorted(families.presets())
    flags.DEFINE_enum("preset", None, names, "the configuration to start from: it sets every default")
    place("preset")
    named = [argument.lstrip("-").partition("=")[2] for argument in sys.argv if re.match("--?preset=", argument)]
    preset = families.presets().get(named[-1]) if named else None
    configs = [preset.config] if preset else families.run_configs()
    for config in configs:
        for group, config_class in config.groups().items():
            default = getattr(config, group) if preset else None
            define_config_flags(config_class, GROUP_PREFIXES.get(group, ""), own_names(config_class), default)
    define_set_flag(configs)


def refuse_foreign_flags(config, groups=None, prefixes=GROUP_PREFIXES):
    """Raises InputError if a flag was given that only other families than that of a Config have as a setting.

    The settings of `groups` are flags, {group: names of fields, or None for all}; None: all groups.
    """

    def names(config_class):
        for group, kind in config_class.groups().items():
            if groups is None or group in groups:
                only = None if groups is None else groups[group]
                yield from (prefixes.get(group, "") + name for name in options(kind) if only is None or name in only)

    own = set(names(type(config)))
    for other in families.run_configs():
        for name in names(other):
            if name not in own and name in flags.FLAGS and flags.FLAGS[name].value is not None:
                raise InputError(
                    f"--{name} is a setting of {families.family_of(other).title}, and this is "
                    f"{families.family_of(config).title}: omit it"
                )


def given_settings(config):
    """The settings of a Config that were given as flags: {group: {field: value}}."""
    refuse_foreign_flags(config)
    by_set = given_by_set(type(config))
    given = {
        group: given_flags(kind, GROUP_PREFIXES.get(group, ""), own_names(kind)) | by_set.get(group, {})
        for group, kind in config.groups().items()
    }
    return given | {"train": given["train"] | given_ops()}


def given_ops():
    """--ops as a setting of training, if it was given."""
    return {"ops": flags.FLAGS.ops} if flags.FLAGS.ops else {}


def settings_of(model_dir):
    """The Config of the run that --settings_from names, for a new run to begin with."""
    from txl_tf.runs.model_dir import read_config

    config = read_config(model_dir)
    if config is None:
        raise InputError(f"--settings_from={model_dir} has no config.json: give the model_dir of a run")
    return config.replace(train={"extended_at": ()})


def corpus_of_run(model_dir, data_dir):
    """The Corpus in data_dir; None: the one that the run in model_dir was trained on."""
    from txl_tf.data.manifest import has_corpus, load_corpus
    from txl_tf.runs.model_dir import trained_on

    own = data_dir or trained_on(model_dir)
    if own is None:
        raise InputError(f"give --data_dir: {model_dir} does not say which corpus it was trained on")
    if not data_dir and not has_corpus(own):
        raise InputError(f"{own} has no corpus any more, and {model_dir} was trained on it: give --data_dir")
    return load_corpus(own)
