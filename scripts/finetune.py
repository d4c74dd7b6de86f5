"""Fine-tunes a pretrained XLNet on a task; started again with the same --model_dir, it continues.

    python scripts/finetune.py --init=xlnet/xlnet-base-cased --task=classification --train=train.tsv --model_dir=runs/1
    python scripts/finetune.py --init=runs/large --preset=race --train=RACE/train --dev=RACE/dev --model_dir=runs/race
    python scripts/finetune.py .. --seeds=1,2,3 --model_dir=runs/three   # runs/three/seed-1 and so on
    python scripts/finetune.py .. --folds=5 --model_dir=runs/five         # cross-validation: runs/five/fold-1 and so on
    python scripts/finetune.py .. --untrained --model_dir=runs/untrained  # new weights: what is pretraining worth?
    python scripts/finetune.py --init=runs/xl --settings_from=runs/1 --train=new.tsv --model_dir=runs/2  # as runs/1 was

Without --dev a tenth of --train is held out to evaluate on, with its share of every class.
Tables are .csv, .tsv, .jsonl, .xlsx, .parquet and others, also packed (.gz); docs/tables.md has them all.
Classification, multi_label (none, one or several labels a text) and regression read tables: a text or a pair of texts,
and a label.
Multiple choice reads RACE's folders, or tables.
Answering reads files of SQuAD 1.1 or 2.0, or tables, with texts in windows of --tgt_len tokens (default 512).
Tagging reads CoNLL's format (on each line a word, .., its tag; an empty line after each text), lists of words and tags,
tables with a row for each word, or texts with spans.
The vocabulary and the sizes are those of --init: a model_dir, or a published model by its name in the Hub, as folder
or zip. --preset names a published recipe; any flag overrides it. The other settings follow from the model's size and
the number of examples: 3 to 20 epochs, a tenth of them for warmup, with evaluations on dev; small models get a higher
learning rate and some dropout.
The best checkpoint on dev by the task's main metric is kept beside the newest. The last line is JSON: the standard
metrics of the best checkpoint on dev, and with several seeds their means and standard deviations.
At SIGTERM or Ctrl-C it finishes the current host loop (--steps_per_loop), saves a checkpoint and exits with status 143
or 130.
"""

import json
import sys

from absl import flags
from command_line import (
    define_config_flags,
    define_example_flags,
    define_strategy_flags,
    given_columns,
    given_flags,
    integers,
    run,
    understood,
)
from flag_help import require_flags
from run_flags import GROUP_PREFIXES, define_set_flag, given_by_set, given_ops, own_names, settings_of

from txl_tf import families
from txl_tf.data.tables.dataset_folders import split_of
from txl_tf.errors import InputError
from txl_tf.settings.groups import options

FLAGS = flags.FLAGS
flags.DEFINE_string(
    "init",
    None,
    "the pretrained model: a model_dir, local or gs://, or a published one: a name in the Hub, folder or zip",
)
flags.DEFINE_enum(
    "task", None, sorted(families.tuned_configs()), "what to learn [the preset's, or that of --settings_from]"
)
flags.DEFINE_string("train", None, "the examples to learn from")
flags.DEFINE_string("dev", None, "the examples to evaluate on [a tenth of --train, by the first seed]")
flags.DEFINE_integer(
    "folds",
    0,
    "cross-validation: divide --train into this many parts; for each part a run learns from the others and is "
    "evaluated on it; 0: one run",
    lower_bound=0,
)
flags.DEFINE_bool(
    "untrained", False, "take only vocabulary and sizes from --init, with new weights: shows what pretraining is worth"
)
flags.DEFINE_string(
    "model_dir", None, "directory for config, checkpoints, metrics and TensorBoard events; local or gs://"
)
flags.DEFINE_enum(
    "preset",
    None,
    list(families.recipes()),
    "a published recipe, with the result that was published for it: "
    + "; ".join(f"{name}: {recipe.source}: {recipe.published}" for name, recipe in families.recipes().items()),
)
flags.DEFINE_string("settings_from", None, "in place of --preset: the settings of the run in this model_dir; or gs://")
flags.DEFINE_list("seeds", ["1"], "seeds of new heads, dropout and the order of examples; one run for each")
flags.DEFINE_string("examples_dir", None, "where encoded examples are kept if there are many [model_dir/examples]")
require_flags("init", unless="dry_run")
require_flags("train")
require_flags("model_dir", unless="dry_run")
define_example_flags()
define_strategy_flags()

FIXED = {
    "model": {
        *("n_layer", "d_model", "n_head", "d_head", "d_inner", "untie_r", "activation"),
        *("init_std", "n_class", "conventions", "reuse_len"),
    },
    "train": {"warm_start", "origin", "seed", "eval_tokens"},
}
"""Settings that follow from other flags, by group: --init, the labels and --seeds."""


def flag_names(config_class):
    """The settings of a task that are flags: {group: [name, ..]}."""
    return {
        group: [name for name in own_names(kind) if name not in FIXED.get(group, ())]
        for group, kind in config_class.groups().items()
    }


COUNTS = ("train_steps", "warmup_steps", "eval_steps", "save_steps", "log_steps")
"""Numbers of steps; by default they follow from the number of examples."""

for tuned in families.tuned_configs().values():
    defaults = tuned.from_groups({}, "defaults")
    for group_name, own in flag_names(tuned).items():
        prefix, kind = GROUP_PREFIXES.get(group_name, ""), tuned.groups()[group_name]
        define_config_flags(kind, prefix, only=[n for n in own if n in COUNTS], default="by the number of examples")
        told = "the pretrained model's, or the preset's" if group_name == "model" else getattr(defaults, group_name)
        define_config_flags(kind, prefix, only=own, default=told)


define_set_flag(families.tuned_configs().values(), FIXED)


def chosen_task():
    """The task to learn, None if only the run of --settings_from says it."""
    recipe = families.recipes()[FLAGS.preset] if FLAGS.preset else None
    task = FLAGS.task or (recipe and recipe.task)
    if task is None and not FLAGS.settings_from:
        raise InputError("give --task, such as classification or tagging (--help lists them), or a --preset")
    if recipe and recipe.task != task:
        raise InputError(f"--preset={FLAGS.preset} is for {recipe.task}, not for --task={task}: give one of them")
    return task


read = {}
"""The rows of the files that were read before TensorFlow was loaded, by their paths."""


def files():
    """The files of --train and --dev."""
    return filter(None, (split_of(FLAGS.train, "train"), split_of(FLAGS.dev, "valid")))


def check():
    """Checks the flags before TensorFlow is loaded."""
    if FLAGS.preset and FLAGS.settings_from:
        raise InputError("give --preset or --settings_from, not both")
    if FLAGS.folds == 1 or (FLAGS.folds and (FLAGS.dev or len(FLAGS.seeds) > 1)):
        raise InputError(f"--folds={FLAGS.folds} must be 2 or more; it takes only one seed, and no --dev")
    if (task := chosen_task()) and not FLAGS.settings_from:
        read.update(understood(task, files(), given_columns(), True, sys.stdout))


def main(_):
    task, settings = begin()
    if FLAGS.settings_from:  # the task was not known before
        read.update(understood(task, files(), given_columns(), True, sys.stdout))

    from txl_tf.devices.distribute import make_strategy  # after the flags are parsed: TensorFlow takes seconds to load
    from txl_tf.finetuner import Finetuner, cross_validate
    from txl_tf.training.interruption import TrainingStoppedError

    strategy, seeds = make_strategy(FLAGS.strategy, FLAGS.tpu), integers("seeds")
    examples_dir = FLAGS.examples_dir or f"{FLAGS.model_dir}/examples"

    def tuner(folder=examples_dir, **part):
        return Finetuner(
            FLAGS.init,
            task,
            FLAGS.train,
            FLAGS.dev,
            settings=settings,
            columns=given_columns(),
            untrained=FLAGS.untrained,
            examples_dir=folder,
            strategy=strategy,
            part_seed=seeds[0],
            rows=read,
            **part,
        )

    def fold(i):
        return tuner(f"{examples_dir}/fold-{i + 1}", part=(i, FLAGS.folds))

    try:
        if FLAGS.folds:
            result = cross_validate(fold, FLAGS.model_dir, FLAGS.folds, seeds[0])
        else:
            result = tuner().run(FLAGS.model_dir, seeds)
        numbers, sentence = families.task_of(families.tuned_configs()[task], families.FineTuning).worth(result)
        if sentence:
            print(f"dev: {sentence}", flush=True)
        print(json.dumps(result | numbers, ensure_ascii=False))
    except TrainingStoppedError as stopped:
        print(stopped)
        return stopped.exit_status


def begin():
    """The task to learn; the settings of the preset or of another run with those that were given as flags."""
    task = chosen_task()
    if not FLAGS.settings_from:
        return task, given_settings(task, families.recipes()[FLAGS.preset].settings if FLAGS.preset else {})
    config = settings_of(FLAGS.settings_from)
    if config.task != (task or config.task):
        raise InputError(f"--settings_from={FLAGS.settings_from} has learned {config.task}: omit --task={task}")
    if config.task not in families.tuned_configs():
        raise InputError(f"--settings_from={FLAGS.settings_from} is not a fine-tuned run: give the model_dir of one")
    theirs = {
        group: {name: getattr(getattr(config, group), name) for name in set(options(kind)) - FIXED.get(group, set())}
        for group, kind in config.groups().items()
    }
    return config.task, given_settings(config.task, theirs)


def given_settings(task, settings):
    """Settings of a task, {group: {field: value}}, with every flag that was given.

    InputError if one was given that is a setting of other tasks alone.
    """
    tasks = families.tuned_configs()
    if task not in tasks:
        raise InputError(f"there is no fine-tuning for {task} yet: choose from {', '.join(tasks)}")
    own, by_set = flag_names(tasks[task]), given_by_set(tasks[task], FIXED)
    for other in tasks.values():
        for group, names in flag_names(other).items():
            for name in given_flags(other.groups()[group], GROUP_PREFIXES.get(group, ""), names):
                if name not in own[group]:
                    raise InputError(f"--{GROUP_PREFIXES.get(group, '')}{name} is not a setting of {task}: omit it")
    return {
        group: settings.get(group, {})
        | given_flags(tasks[task].groups()[group], GROUP_PREFIXES.get(group, ""), own[group])
        | by_set.get(group, {})
        | (given_ops() if group == "train" else {})
        for group in own
    }


if __name__ == "__main__":
    run(main, check)
