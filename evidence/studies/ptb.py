"""The Penn Treebank with the preset ptb: the paper's table 5, and the worth of each regularizer on a small scale.

    python evidence/studies/ptb.py --source=FOLDER --out=runs/ptb_small --page=evidence/studies/ptb.md
    python evidence/studies/ptb.py --source=FOLDER --out=runs/ptb --scale=paper --minutes=9

FOLDER has ptb.train.txt, ptb.valid.txt and ptb.test.txt, perhaps with .gz. --scale=small: a small model on the first
tenth of each file, on a CPU, with each regularizer switched off in one run. --scale=paper: the whole corpus, on a GPU;
`make ptb` runs it. With --minutes it ends after that time, with a checkpoint; the same command then continues. Prints
the state of the runs.
"""

import functools
import math
import signal

import figures
import study
from absl import flags
from command_line import run
from jobs import Job
from study import Scale

FLAGS = flags.FLAGS
PAPER = 54.5
"""Perplexity on test of the paper's table 5."""

_SITES = {"input": 0.3, "positions": 0.3, "qkv": 0.1, "attention": 0.1, "feed_forward": 0.1, "output": 0.3}
"""Rates of the small scale: half of the preset's, since its model is small and its runs are short."""


def _without(*sites):
    rates = {site: 0.0 if site in sites else rate for site, rate in _SITES.items()}
    return {"dropout_sites": ",".join(f"{site}:{rate}" for site, rate in rates.items())}


_T = 35
_OFF = {
    "words": {"dropemb": 0.0},
    "input": _without("input", "positions"),
    "attention": _without("qkv", "attention") | {"dropatt": 0.0},
    "feed_forward": _without("feed_forward"),
    "output": _without("output"),
    "l2": {"l2": 0.0},
    "activation": {"activation_penalty": 0.0},
    "slowness": {"slowness_penalty": 0.0},
    "lengths": {"tgt_len_std": 0, "lr_by_length": False},
}
"""Flags that switch a regularizer off."""

TITLES = {
    "all": "everything on",
    "words": "no dropout of words",
    "input": "no dropout of embeddings and positions",
    "attention": "no dropout in and after attention",
    "feed_forward": "no dropout in feed-forward",
    "output": "no dropout before the softmax",
    "l2": "no L2",
    "activation": "no activation penalty",
    "slowness": "no slowness penalty",
    "lengths": "segments of equal lengths",
    "memory": "memory without gradient instead of the extended context",
    "none": "no regularizer at all",
    "start": "second phase at half the rate of the start",
    "end": "second phase at half the rate of the end",
}
"""A description of each variant, in the order of the table."""

SCALES = {
    "small": Scale(
        "ptb",
        {"n_layer": 2, "d_model": 64, "d_embed": 64, "n_head": 4, "d_head": 16, "d_inner": 152, "batch_size": 10}
        | {"tgt_len": _T, "tgt_len_std": 3, "ext_len": _T, "dropemb": 0.1, "dropatt": 0.1, **_without()}
        | {"learning_rate": 3e-3, "warmup_steps": 100, "train_steps": 1600, "average_from_step": 1100}
        | {"steps_per_loop": 100, "log_steps": 100, "eval_steps": 200, "save_steps": 500, "keep_checkpoints": 1}
        | {"eval_tgt_len": _T, "eval_ext_len": _T, "jit_compile": False, "eval_jit_compile": False},
        {
            "all": {},
            "none": functools.reduce(dict.__or__, [*_OFF.values(), _without(*_SITES)]),
            **_OFF,
            "memory": {"mem_len": _T, "ext_len": 0, "eval_mem_len": _T, "eval_ext_len": 0}
            | {"conventions": "official_pytorch"},
        },
        (1, 2),
    ),
    "paper": Scale("ptb", {}, {"start": {}, "end": {"average_lr_ratio": 1 / 6}}, (1, 2, 3)),
}
PANELS = {
    "dropout": ("all", "words", "input", "attention", "feed_forward", "output"),
    "other regularizers": ("all", "none", "l2", "activation", "slowness", "lengths", "memory"),
    "learning rate of the second phase": ("start", "end"),
}
"""The variants in each panel of the picture: no more than there are colours."""
TESTS = {"averaged": {"batch_size": 1}, "last": {"batch_size": 1, "weights": "last"}}
"""Flags of scripts/evaluate.py."""

if __name__ == "__main__":
    study.define_flags()
    flags.DEFINE_string("source", None, "the folder with the text", required=True)
    flags.DEFINE_integer("minutes", 0, "end after this time, with a checkpoint; 0: when all is done", lower_bound=0)


def main(argv):
    """Runs the remaining jobs, as long as --minutes allows, and reports."""
    del argv
    scale = SCALES[FLAGS.scale]
    jobs = make_jobs(scale)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(60 * FLAGS.minutes)
    try:
        study.run(jobs)
    except KeyboardInterrupt:
        print("interrupted: the same command continues", flush=True)
    signal.alarm(0)
    report(scale, jobs)


def make_jobs(scale):
    """The jobs: the corpus; training and tests of each run."""
    text, corpus = f"{FLAGS.out}/text", f"{FLAGS.out}/corpus"
    part = {"small": 10, "paper": 1}[FLAGS.scale]
    jobs = [
        Job("text", "evidence/studies/ptb_text.py", {"source": FLAGS.source, "out": text, "part": part}),
        Job("corpus", "scripts/prepare_data.py", {"dataset": "ptb", "source": text, "data_dir": corpus}, ("text",)),
    ]
    for seed in scale.seeds:
        for variant in scale.variants:
            jobs.append(study.train_job(scale, variant, seed, corpus, ("corpus",)))
            jobs += [study.evaluation_job(variant, seed, test, corpus, given) for test, given in TESTS.items()]
    return jobs


def report(scale, jobs):
    """Publishes the results so far: a table, a plot, and the best result beside the paper's."""
    rows, best = [], math.inf
    for variant in (name for name in TITLES if name in scale.variants):
        losses = {test: [found["loss"] for found in study.results(scale, variant, test).values()] for test in TESTS}
        curves = [curve for curve in study.curves(scale, variant) if curve]
        if curves:
            lowest = [math.exp(min(loss for _, loss in curve)) for curve in curves]
            steps = ", ".join(f"{curve[-1][0]:,}" for curve in curves)
            tests = [[math.exp(loss) for loss in found] for found in losses.values()]
            best = min(best, *map(min, filter(None, tests)), math.inf)
            cells = [study.mean_and_spread(found, 2) for found in (lowest, *tests)]
            rows.append([TITLES[variant], *cells, steps])
    head = ["run", "valid, best", "test, averaged weights", "test, last weights", "steps"]
    parts = ["Perplexity:", study.table(head, rows), study.about(jobs)]
    if FLAGS.scale == "paper":
        parts.insert(0, standing(best))
    if study.plot_path() and rows:
        draw(scale)
    study.publish("\n\n".join(parts), "perplexity on valid by updates, for each run")


def standing(best):
    """A sentence about the best result on test so far."""
    if best == math.inf:
        return f"The paper has {PAPER} on test; no run has been tested yet."
    return f"The paper has {PAPER} on test; the best run has {best:.2f}, {abs(best - PAPER):.2f} " + (
        "more." if best > PAPER else "less."
    )


def draw(scale):
    """Draws the curves: perplexity on valid by updates."""
    from matplotlib.ticker import StrMethodFormatter

    panels = {title: names for title, names in PANELS.items() if {*names} & {*scale.variants}}
    note = "perplexity on valid, logarithmic"
    figure, axes = figures.panels(list(panels), "updates, thousands", "perplexity", note, height=4.2)
    for ax, names in zip(axes, panels.values(), strict=True):
        for variant, role in zip(names, figures.ROLES, strict=False):
            runs = [curve for curve in study.curves(scale, variant) if curve]
            if runs:
                x = [step / 1000 for step, _ in max(runs, key=len)]
                figures.band(ax, x, [[math.exp(loss) for _, loss in run] for run in runs], TITLES[variant], role)
        ax.set_yscale("log")
        for axis in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
            axis(StrMethodFormatter("{x:,.0f}"))
        figures.legend(ax, 1)
    figures.save(figure, study.plot_path())


if __name__ == "__main__":
    run(main)
