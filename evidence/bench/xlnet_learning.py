"""Trains small XLNets and compares what they learn: with and without memory, one token in six predicted or all.

    python evidence/bench/xlnet_learning.py --data_dir=corpus --out=runs/learning \\
        --plot=evidence/studies/xlnet_learning.svg

The runs follow one another, each in a separate process, and an interrupted run continues. Runs with segments of the
same length are evaluated on the same targets, one token in six. The learning rate is constant after the warmup, so that
its end favours no run. Time is processor time of training alone, user and system, since other programs may run on the
machine.
Prints a line for each evaluation on test.
"""

import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[2] / "scripts"))

from absl import flags
from command_line import run

from txl_tf import families

BATCH, LENGTH, STEPS_BETWEEN = 8, 128, 200
RUNS = {
    "memory": {"model": {"mem_len": 128}, "train": {"train_steps": 2_000}},
    "predict_all": {
        "model": {"mem_len": 128},
        "train": {"train_steps": 1_000},
        "objective": {"num_predict": 127},
    },
    "no_memory": {"model": {"mem_len": 0}, "train": {"train_steps": 2_000}},
} | {
    f"short_{memory}_{seed}": {
        "model": {"mem_len": mem_len, "reuse_len": 16},
        "data": {"batch_size": 32, "tgt_len": 32},
        "train": {"train_steps": 2_000, "seed": seed},
        "objective": {"num_predict": 5, "perm_size": 16},
    }
    for seed in (1, 2)
    for memory, mem_len in (("memory", 128), ("no_memory", 0))
}
"""Settings of each run. num_predict=127 of 128 tokens means all, since SEP, SEP and CLS are never predicted. In short
segments a token sees little but the memory."""
TESTS = {
    "memory": ("memory", ()),
    "memory, evaluated without": ("memory", ("--mem_len=0",)),
    "predict_all, evaluated on all tokens": ("predict_all", ()),
    "predict_all": ("predict_all", ("--num_predict=21",)),
    "no_memory": ("no_memory", ()),
}
for _seed in (1, 2):
    _with, _without = f"short_memory_{_seed}", f"short_no_memory_{_seed}"
    TESTS |= {_with: (_with, ()), f"{_with}, evaluated without": (_with, ("--mem_len=0",)), _without: (_without, ())}
"""Evaluations on test: run and flags."""
LINES = {
    "one token in six": ("strong", "-"),
    "all tokens": ("green", "-"),
    "with memory": ("strong", "-"),
    "taken away": ("warm", "--"),
    "trained without": ("strong", "--"),
    "without": ("strong", "--"),
}
"""The role of each line's colour, and its style: dashed without memory."""

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "the corpus, with SEP and CLS in its vocabulary", required=True)
flags.DEFINE_string("out", None, "where a model_dir for each run, and test.json, are written", required=True)
flags.DEFINE_list("runs", list(RUNS), f"which of {', '.join(RUNS)} to train")
flags.DEFINE_string("run", None, "the run that this process trains; without it, all of --runs")
flags.DEFINE_bool("train", True, "train; --notrain only evaluates and draws finished runs")
flags.DEFINE_string("plot", None, "an SVG file for the curves")


def main(argv):
    del argv
    if FLAGS.run:
        return train_one(FLAGS.run)
    for name in FLAGS.runs if FLAGS.train else ():
        subprocess.run([sys.executable, *sys.argv, f"--run={name}"], check=True, stderr=sys.stderr)
    results = evaluated()
    for name, result in results.items():
        print(json.dumps({"evaluation": name} | result))
    if FLAGS.plot:
        pathlib.Path(FLAGS.plot).write_text(drawing(results))
    return 0


def train_one(name):
    """Trains a run; each line of its evaluations.jsonl has the processor time of training so far."""
    from txl_tf.data.manifest import load_corpus
    from txl_tf.devices.distribute import make_strategy
    from txl_tf.inference.evaluate import Evaluator
    from txl_tf.training.loop import train

    strategy, corpus = make_strategy("auto", None), load_corpus(FLAGS.data_dir)
    preset = families.presets()["xlnet_demo"].config
    base = (
        families.task_of(preset, families.Pretraining)
        .fit_to_corpus(preset, corpus, {})
        .replace(
            model={"n_layer": 2, "init_std": 0.06},
            data={"batch_size": BATCH, "tgt_len": LENGTH},
            train={
                "learning_rate": 1e-3,
                "min_lr_ratio": 1.0,
                "eval_steps": STEPS_BETWEEN,
                "save_steps": STEPS_BETWEEN,
            },
            eval={"batch_size": BATCH},
        )
    )
    config = base.replace(**RUNS[name])
    shared = config.replace(objective={"num_predict": min(config.objective.num_predict, base.objective.num_predict)})
    evaluating = 0.0

    def evaluator(model):
        evaluate = Evaluator(shared, model, corpus, "valid", strategy)

        def timed(progress):
            nonlocal evaluating
            start = time.process_time()
            result = evaluate(progress) | {"cpu_seconds": start - evaluating}
            evaluating += time.process_time() - start
            return result

        return timed

    train(config, corpus, os.path.join(FLAGS.out, name), strategy, evaluator)
    return 0


def evaluated():
    """The results of TESTS, {name: result}; results in test.json are not computed again."""
    path = pathlib.Path(FLAGS.out) / "test.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for name, (model, more) in TESTS.items():
        model_dir = os.path.join(FLAGS.out, model)
        if name not in results and os.path.exists(os.path.join(model_dir, "config.json")):
            command = [sys.executable, str(pathlib.Path(__file__).parents[2] / "scripts" / "evaluate.py")]
            command += [f"--model_dir={model_dir}", f"--data_dir={FLAGS.data_dir}", "--split=test", *more]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=sys.stderr, text=True)
            results[name] = json.loads(done.stdout.splitlines()[-1])
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(results, indent=1))
            partial.replace(path)  # whole or not at all
    return results


def curve(name):
    """A run's evaluations on valid: (step, processor seconds of training, loss) of each.

    The time of a step is the median between two evaluations, so the time to compile does not count.
    """
    lines = [json.loads(line) for line in (pathlib.Path(FLAGS.out) / name / "evaluations.jsonl").open()]
    steady = statistics.median(
        (late["cpu_seconds"] - early["cpu_seconds"]) / (late["step"] - early["step"])
        for early, late in itertools.pairwise(lines)
    )
    return [(line["step"], line["step"] * steady, line["loss"]) for line in lines]


def drawing(results):
    """An SVG text with a panel for each question."""

    def by_rank(**names):
        losses = {title: results[name]["loss_by"]["rank"]["loss"] for title, name in names.items()}
        return {title.replace("_", " "): list(enumerate(column, 1)) for title, column in losses.items()}

    seconds = {
        title: [(second, loss) for _, second, loss in curve(name)]
        for title, name in (("all tokens", "predict_all"), ("one token in six", "memory"))
    }
    end = min(points[-1][0] for points in seconds.values())
    seconds = {title: [point for point in points if point[0] <= end * 1.02] for title, points in seconds.items()}
    ranks = by_rank(all_tokens="predict_all, evaluated on all tokens", one_token_in_six="memory")
    memory = by_rank(trained_without="no_memory", taken_away="memory, evaluated without", with_memory="memory")
    short = {
        title: [(step, loss) for step, _, loss in curve(name)]
        for title, name in (("without", "short_no_memory_1"), ("with memory", "short_memory_1"))
    }
    return picture(
        ("Number of targets: loss by rank", "eighth of the ranks", ranks),
        ("Memory: loss by rank", "eighth of the ranks", memory),
        ("Memory, T 32: loss on valid", "updates", short),
        ("Number of targets: loss on valid", "processor seconds", seconds),
    )


def picture(*panels):
    """An SVG text with a panel for each (title, name of the x-axis, {name of a curve: [(x, loss)]})."""
    sys.path.append(str(pathlib.Path(__file__).parents[2] / "docs" / "figures"))
    from drawing import ROLES, draw_curves, new_figure, svg_of

    figure, all_axes = new_figure(2.8 * len(panels), len(panels))
    for axes, (title, x_label, curves) in zip(all_axes, panels, strict=True):
        draw_curves(axes, title, x_label, "nats per target")
        for name, points in curves.items():
            role, style = LINES[name]
            axes.plot(*zip(*points, strict=True), style, color=ROLES[role][0], marker="o", label=name)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.legend()
    return svg_of(figure)


if __name__ == "__main__":
    run(main)
