"""Does learning reach beyond the segment? The text asks for values that it gave up to 16 segments before.

    python evidence/studies/recall.py --out=runs/recall --at_once=2 --page=evidence/studies/recall.md

Models with and without recurrence learn the text that key_values.py describes. Accuracy is the probability that a model
gives to the right answer, averaged over the answers at a distance: the rate at which a sampled answer is right. Chance
is one over the number of values. In evaluation a query sees the M tokens before it in every layer, so N layers reach
N M tokens back at most; models without recurrence compute the last T tokens again for each token. Prints a table.
"""

import bisect
import math
import os
import pathlib
import statistics

import figures
import study
from absl import flags
from command_line import run
from jobs import Job
from key_values import questions
from study import Scale

FLAGS = flags.FLAGS
VALUES = 8
_ENCODINGS = {"shaw": {"attn_type": "shaw"}, "vaswani": {"attn_type": "vaswani"}}


def _variants(t_len):
    """The variants for segments of T tokens."""
    short, long, none = ({"mem_len": m_len, "eval_mem_len": m_len} for m_len in (t_len, 4 * t_len, 0))
    encodings = {name: short | encoding for name, encoding in _ENCODINGS.items()}
    return {
        "memory_T": short,
        "no_recurrence": none,
        "memory_4T": long,
        "one_layer": short | {"n_layer": 1},
    } | encodings


SCALES = {
    "small": Scale(
        "demo",
        {"n_layer": 2, "d_model": 64, "d_embed": 64, "n_head": 2, "d_head": 32, "d_inner": 128, "init_std": 0.1}
        | {"tgt_len": 16, "batch_size": 64, "clip": 1.0, "eval_batch_size": 4, "eval_tgt_len": 16}
        | {"eval_clamp_len": -1, "eval_same_length": False}
        | {"train_steps": 1500, "learning_rate": 3e-3, "warmup_steps": 100}
        | {"steps_per_loop": 100, "log_steps": 100, "eval_steps": 250, "save_steps": 500, "keep_checkpoints": 1},
        _variants(16),
        (1, 2),
    ),
    "paper": Scale(
        "enwik8_base",
        {"tgt_len": 128, "batch_size": 64, "train_steps": 20_000, "warmup_steps": 1000, "eval_batch_size": 8}
        | {
            "eval_tgt_len": 128,
            "eval_clamp_len": -1,
            "eval_same_length": False,
            "save_steps": 5000,
            "eval_steps": 5000,
        },
        _variants(128),
        (1, 2, 3),
    ),
}
TITLES = {
    "no_recurrence": "no recurrence",
    "memory_T": "M = T",
    "memory_4T": "M = 4 T",
    "one_layer": "M = T, one layer",
    "shaw": "Shaw, M = T",
    "vaswani": "Vaswani, M = T",
}
LINES = {
    "no_recurrence": (figures.MODEL, figures.NO_MEMORY),
    "memory_T": (figures.MODEL,),
    "memory_4T": ("teal",),
    "one_layer": ("warm",),
    "shaw": (figures.ENCODINGS["Shaw"],),
    "vaswani": (figures.ENCODINGS["Vaswani"],),
}
"""How the line of each variant is drawn."""
TESTS = {"trained": "as trained", "longer": "M = 16 T in evaluation"}
WORDS = {"small": "500000,8000,40000", "paper": "100000000,50000,400000"}

if __name__ == "__main__":
    study.define_flags()


def main(argv):
    """Runs the study and reports it."""
    del argv
    study.run_and_report(SCALES[FLAGS.scale], make_jobs, report)


def make_jobs(scale):
    """The jobs: a text, its preparation, and for each run its training and its tests."""
    text, corpus = (os.path.join(FLAGS.out, name) for name in ("text", "corpus"))
    longest = 16 * scale.settings["tgt_len"]
    made = {"out": text, "keys": 8, "values": VALUES, "longest": longest, "words": WORDS[FLAGS.scale]}
    prepared = {"dataset": "text", "vocab": "words", "source": text, "data_dir": corpus}
    jobs = [
        Job("text", "evidence/studies/recall_text.py", made),
        Job("corpus", "scripts/prepare_data.py", prepared, ("text",)),
    ]
    for seed in scale.seeds:
        for variant in scale.variants:
            jobs.append(study.train_job(scale, variant, seed, corpus, ("corpus",)))
            for test, settings in tests(scale, variant).items():
                tokens = tokens_path(variant, seed, test)
                job = study.evaluation_job(variant, seed, test, corpus, settings | {"per_token_out": tokens})
                jobs.append(job)
    return jobs


def tests(scale, variant):
    """Flags of scripts/evaluate.py for each test of a variant."""
    t_len, m_len = scale.settings["tgt_len"], scale.flags(variant)["mem_len"]
    if not m_len:
        return {"trained": {"sliding_window": t_len, "batch_size": 1}}
    return {
        "trained": {"mem_len": m_len, "same_length": True, "batch_size": 1},
        "longer": {"mem_len": 16 * t_len, "same_length": True, "batch_size": 1},
    }


def tokens_path(variant, seed, test):
    """Where a test writes the log-probability of each token."""
    return os.path.join(FLAGS.out, f"{study.run_name(variant, seed)}-{test}.tsv")


def report(scale, jobs):
    """Publishes the results so far: a table and a plot."""
    t_len = scale.settings["tgt_len"]
    bounds = [t_len * 2**power / 4 for power in range(7)]  # distances up to T/4, T/2, T, .., 16 T
    found = {}
    for variant in scale.variants:
        for test in tests(scale, variant):
            seeds = study.results(scale, variant, test)
            if seeds:
                found[variant, test] = [accuracy(tokens_path(variant, seed, test), bounds) for seed in seeds]
    head = ["", "in evaluation", *(f"{bound / t_len:g} T" for bound in bounds)]
    rows = [
        [TITLES[variant], TESTS[test], *(study.mean_and_spread(column, 2) for column in zip(*runs, strict=True))]
        for (variant, test), runs in found.items()
    ]
    title = f"Probability of the right answer by distance at most, in segments (chance: {1 / VALUES:.3f}):"
    if study.plot_path() and found:
        draw(scale, bounds, found)
    parts = [title, study.table(head, rows), study.about(jobs)]
    study.publish("\n\n".join(parts), "probability of the right answer by distance")


def accuracy(path, bounds):
    """The mean probability of the right answers, for distances up to each bound and above the one before it."""
    lines = [line.split("\t") for line in pathlib.Path(path).read_text().splitlines()[1:]]
    sums = [[] for _ in bounds]
    for place, distance in questions([word for _, _, word in lines]):
        sums[bisect.bisect_left(bounds, distance)].append(math.exp(float(lines[place][1])))
    return [statistics.mean(values) for values in sums]


def draw(scale, bounds, found):
    """Draws accuracy by distance: recurrence, longer memory in evaluation, other encodings and depths."""
    t_len = scale.settings["tgt_len"]
    x = [bound / t_len for bound in bounds]
    panels = {
        "recurrence": [("no_recurrence", "trained"), ("memory_T", "trained"), ("memory_4T", "trained")],
        "a longer memory in evaluation": [("memory_T", "longer"), ("memory_4T", "longer")],
        "other encodings, and depth": [("one_layer", "trained"), ("shaw", "trained"), ("vaswani", "trained")],
    }
    note = "grey: chance; dotted: the theoretical reach N M\nbands: lowest to highest seed"
    figure, axes = figures.panels(
        list(panels), "distance at most, in segments (T)", "probability of the right answer", note
    )
    for ax, shown in zip(axes, panels.values(), strict=True):
        ax.axhline(1 / VALUES, color="#999", linewidth=1)
        for key in shown:
            if key in found:
                line = figures.band(ax, x, found[key], TITLES[key[0]], *LINES[key[0]])
                settings = scale.flags(key[0])
                if key[1] == "trained" and settings["mem_len"]:
                    reach = settings["n_layer"] * settings["mem_len"] / t_len
                    ax.axvline(reach, color=line.get_color(), linestyle=":", linewidth=1.5)
        ax.set_xscale("log", base=2)
        ax.set_xticks(x, [f"{value:g}" for value in x])
        ax.set_ylim(0, 1.02)
        figures.legend(ax, 3)
    figures.save(figure, study.plot_path())


if __name__ == "__main__":
    run(main)
