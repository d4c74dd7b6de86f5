"""Recurrence, encodings and loss positions: the paper's tables 6, 7 and 10 with small models.

    python evidence/studies/ablations.py --out=runs/ablations --at_once=2 --page=evidence/studies/ablations.md
    python evidence/studies/ablations.py --scale=paper --data_dir=data/wt103 --out=runs/wt103 --list

Transformer-XL, Shaw, Vaswani and Al-Rfou with and without recurrence, with the loss on all positions or on the second
half of each segment: same sizes, same tokens, same targets in evaluation. Models with recurrence are evaluated with
memories of several lengths. Models without it compute a window again for every token, of several lengths, as the paper
does. Table 10: longer segments without recurrence, for which a training step takes the same memory as with recurrence;
the jobs memory-.. print each step's memory by the TPU compiler. Without --data_dir the text is Python's standard
library in pieces. Prints the tables.
"""

import figures
import study
from absl import flags
from command_line import run
from jobs import Job, read_record
from study import Scale

FLAGS = flags.FLAGS
_HALF = {"loss_positions": "half"}


def _variants(t_len, longer, steps):
    """The variants for segments of T tokens, or of `longer` tokens in fewer of the `steps` updates."""
    none = {"mem_len": 0, "eval_mem_len": 0}
    long = none | {
        "tgt_len": longer,
        "eval_tgt_len": longer,
        "train_steps": steps * t_len // longer,
    }
    shaw, vaswani, alrfou = ({"attn_type": name} for name in ("shaw", "vaswani", "alrfou"))
    return {
        "xl": {},
        "no_recurrence": none,
        "shaw": shaw,
        "no_recurrence_shaw": none | shaw,
        "xl_half": _HALF,
        "no_recurrence_half": none | _HALF,
        "vaswani_half": none | vaswani | _HALF,
        "alrfou_half": none | alrfou | _HALF,
        "no_recurrence_shaw_half": none | shaw | _HALF,
        "no_recurrence_long": long,
        "no_recurrence_long_half": long | _HALF,
    }


TITLES = {
    "xl": ("yes", "Transformer-XL", "full"),
    "shaw": ("yes", "Shaw", "full"),
    "xl_half": ("yes", "Transformer-XL", "half"),
    "no_recurrence": ("no", "Transformer-XL", "full"),
    "no_recurrence_half": ("no", "Transformer-XL", "half"),
    "no_recurrence_shaw": ("no", "Shaw", "full"),
    "no_recurrence_shaw_half": ("no", "Shaw", "half"),
    "vaswani_half": ("no", "Vaswani", "half"),
    "alrfou_half": ("no", "Al-Rfou", "half"),
    "no_recurrence_long": ("no, longer segments", "Transformer-XL", "full"),
    "no_recurrence_long_half": ("no, longer segments", "Transformer-XL", "half"),
}
"""Recurrence, encoding and loss of each variant, in the order of the table."""

_STEPS = 1600
SCALES = {
    "small": Scale(
        "demo",
        {"n_layer": 4, "d_model": 192, "d_embed": 192, "n_head": 4, "d_head": 48, "d_inner": 768, "init_std": 0.05}
        | {"tgt_len": 32, "mem_len": 32, "batch_size": 16, "train_steps": _STEPS}
        | {"learning_rate": 1e-3, "warmup_steps": 100, "steps_per_loop": 100, "log_steps": 100}
        | {"eval_steps": 200, "save_steps": 400, "keep_checkpoints": 1}
        | {
            "eval_batch_size": 8,
            "eval_tgt_len": 32,
            "eval_mem_len": 32,
            "eval_clamp_len": -1,
            "eval_same_length": False,
        },
        _variants(32, 36, _STEPS),
        (1, 2),
    ),
    "paper": Scale(
        "wt103_base",
        {
            "batch_size": 60,
            "train_steps": 200_000,
            "tgt_len": 128,
            "mem_len": 128,
            "eval_tgt_len": 128,
            "eval_mem_len": 128,
            "eval_same_length": False,
        },
        _variants(128, 176, 200_000),
        (1, 2),
    ),
}
SPAN = {"small": (1, 2, 4, 8), "paper": (1, 2, 3, 4)}
"""Lengths of memory in evaluation, in segments."""
WINDOWS = (1, 2)
"""Lengths of windows in evaluation, in segments."""
LANES = {"small": 256, "paper": 60}
"""Lanes of the steps whose memory is measured: enough that activations do not fit in a core's on-chip memory."""

if __name__ == "__main__":
    study.define_flags()
    flags.DEFINE_string("data_dir", None, "the corpus; without it, Python's standard library is prepared")


def main(argv):
    """Runs the study and reports it."""
    del argv
    study.run_and_report(SCALES[FLAGS.scale], make_jobs, report)


def make_jobs(scale):
    """The jobs: the corpus, if none is given; training and a test of each run; the other tests; table 10's memory."""
    corpus, jobs = study.corpus_jobs()
    needs = tuple(job.name for job in jobs[-1:])
    later = []
    for seed in scale.seeds:
        for variant in scale.variants:
            first, *others = (
                study.evaluation_job(variant, seed, test, corpus, settings)
                for test, settings in tests(scale, variant).items()
            )
            jobs += [study.train_job(scale, variant, seed, corpus, needs), first]
            later += others
    return jobs + later + [memory_job(scale, variant) for variant in ("xl", "no_recurrence", "no_recurrence_long")]


def tests(scale, variant):
    """Flags of scripts/evaluate.py for each test of a variant: {attention length: flags}."""
    settings = scale.flags(variant)
    t_len = settings["tgt_len"]
    if settings["mem_len"]:
        return {str(t_len * n): {"mem_len": t_len * n} for n in SPAN[FLAGS.scale]}
    return {str(t_len * n): {"sliding_window": t_len * n} for n in WINDOWS}


def memory_job(scale, variant):
    """Compiles a variant's training step for a TPU core; its JSON line has the memory."""
    settings = {name: value for name, value in scale.flags(variant).items() if not name.startswith("eval_")}
    settings |= {} if FLAGS.data_dir or FLAGS.scale == "paper" else {"vocab_size": study.PIECES}
    del settings["batch_size"]
    return Job(
        f"memory-{variant}", "evidence/compilers/aot_compile.py", settings | {"batch_size_per_core": LANES[FLAGS.scale]}
    )


def report(scale, jobs):
    """Publishes the results so far: the tables and a plot."""
    t_len = scale.settings["tgt_len"]
    rows = []
    for variant, title in TITLES.items():
        losses = {
            length: [result["loss"] for result in found.values()]
            for length in tests(scale, variant)
            if (found := study.results(scale, variant, length))
        }
        if losses:
            best = min(losses, key=lambda length: sum(losses[length]) / len(losses[length]))
            trained = losses.get(str(scale.flags(variant)["tgt_len"]), [])
            every = ", ".join(f"{length}: {sum(found) / len(found):.3f}" for length, found in losses.items())
            rows.append([*title, study.mean_and_spread(trained), study.mean_and_spread(losses[best]), best, every])
    head = ["recurrence", "encoding", "loss", "test, trained length", "best", "attention length of best", "all lengths"]
    parts = [f"Nats per token on test, T = {t_len}:", study.table(head, rows)]
    lanes = f"Memory of a training step on one TPU core, {LANES[FLAGS.scale]} lanes:"
    parts += [lanes, memory_table(scale), study.about(jobs)]
    if study.plot_path() and rows:
        draw(scale)
    study.publish("\n\n".join(parts), "loss on valid by tokens, for each variant")


def memory_table(scale):
    """Table 10's memory: bytes of each training step by the TPU compiler."""
    rows = []
    for variant in ("xl", "no_recurrence", "no_recurrence_long"):
        record = read_record(study.folder(), memory_job(scale, variant).name)
        if record.get("finished"):
            line, settings = record["lines"][-1], scale.flags(variant)
            lengths = f"{settings['tgt_len']}", f"{settings['mem_len']}"
            rows.append([variant, *lengths, f"{line['hbm_bytes'] / 1e6:.1f}", f"{line['hbm_temporaries'] / 1e6:.1f}"])
    return study.table(["training step", "T", "M", "MB in all", "MB besides weights, moments and batch"], rows)


LINES = {
    "yes": ("", figures.MEMORY),
    "no": (", no recurrence", figures.NO_MEMORY),
    "no, longer segments": (", longer segments", figures.LONG),
}
"""The end of a line's name and its style, by its recurrence."""


def draw(scale):
    """Draws the learning curves: loss on valid by tokens."""
    panels = {
        "loss on all positions": [name for name in scale.variants if not name.endswith("_half")],
        "loss on the second half": [name for name in scale.variants if name.endswith("_half")],
    }
    note = "valid, in segments as in training\nbands: from the lowest to the highest seed"
    figure, axes = figures.panels(list(panels), "tokens, thousands", "nats per token", note)
    for ax, names in zip(axes, panels.values(), strict=True):
        for name in names:
            runs = study.curves(scale, name)
            if runs:
                settings = scale.flags(name)
                tokens = settings["batch_size"] * settings["tgt_len"] / 1000
                x = [step * tokens for step, _ in max(runs, key=len)]
                recurrence, encoding, _ = TITLES[name]
                losses = [[loss for _, loss in run] for run in runs]
                label, style = LINES[recurrence]
                figures.band(ax, x, losses, f"{encoding}{label}", figures.ENCODINGS[encoding], style)
        figures.legend(ax)
    figures.save(figure, study.plot_path())


if __name__ == "__main__":
    run(main)
