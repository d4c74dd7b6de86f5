"""How long a context helps: the paper's table 8, RECL, of models that evidence/studies/ablations.py trained.

    python evidence/studies/context_length.py --out=runs/ablations --page=evidence/studies/context_length.md

Each seed has one group: Transformer-XL, the same with Shaw's encoding, one without recurrence, and Al-Rfou's
Transformer. A model gets only the c tokens before a target. Prints a table of RECL for r = 0.1, 0.5 and 1, and one of
losses by c.
"""

import figures
import study
from absl import flags
from command_line import run
from jobs import Job, read_record

FLAGS = flags.FLAGS
GROUP = {
    "xl": "Transformer-XL",
    "shaw": "with Shaw's encoding",
    "no_recurrence": "without recurrence",
    "alrfou_half": "Al-Rfou, without recurrence, half loss",
}
"""Runs of a group, by their names in evidence/studies/ablations.py."""
LINES = {
    "xl": (),
    "shaw": (figures.ENCODINGS["Shaw"],),
    "no_recurrence": (figures.MODEL, figures.NO_MEMORY),
    "alrfou_half": (figures.ENCODINGS["Al-Rfou"], figures.NO_MEMORY),
}
"""How the line of each run is drawn."""
SEEDS = (1, 2)
LENGTHS = {"small": (8, 16, 32, 48, 64, 96, 128, 192), "paper": tuple(range(50, 1001, 50))}
POSITIONS = {"small": 1000, "paper": 10_000}
TOP_R = ("0.1", "0.5", "1.0")

if __name__ == "__main__":
    study.define_flags()
    flags.DEFINE_string("data_dir", None, "the corpus; without it, the one that the runs' study prepared")


def main(argv):
    """Runs the study and reports it."""
    del argv
    jobs = make_jobs()
    study.run(jobs)
    records = [read_record(study.folder(), job.name) for job in jobs]
    groups = [record["lines"] for record in records if record.get("finished")]
    report(groups, jobs)


def make_jobs():
    """A job for each seed's group."""
    corpus, _ = study.corpus_jobs()
    lengths, positions = LENGTHS[FLAGS.scale], POSITIONS[FLAGS.scale]
    settings = {"data_dir": corpus, "context_lengths": lengths, "positions": positions, "top_r": TOP_R}
    return [
        Job(
            f"recl-{seed}",
            "scripts/recl.py",
            {"model_dirs": tuple(study.model_dir(variant, seed) for variant in GROUP)} | settings,
            tuple(study.run_name(variant, seed) for variant in GROUP),
        )
        for seed in SEEDS
    ]


def report(groups, jobs):
    """Publishes the lines of the groups that are there: tables and a plot."""
    lengths = LENGTHS[FLAGS.scale]
    rows, losses = [], []
    for i, title in enumerate(GROUP.values()):
        # Lines are ordered by r, then by model.
        lines = [group[i :: len(GROUP)] for group in groups]
        rows.append([title, *(" / ".join(str(seed[r]["recl"]) for seed in lines) for r in range(len(TOP_R)))])
        losses.append([seed[0]["losses"] for seed in lines])
    means = [
        [title, *(study.mean_and_spread(column) for column in zip(*runs, strict=True))]
        for title, runs in zip(GROUP.values(), losses, strict=True)
    ]
    parts = ["RECL in tokens, by seed:", study.table(["", *(f"r = {r}" for r in TOP_R)], rows)]
    parts += ["Nats per token with c tokens of context:", study.table(["c", *map(str, lengths)], means)]
    if study.plot_path() and groups:
        note = f"{POSITIONS[FLAGS.scale]:,} positions of test; bands: from the lowest to the highest seed"
        figure, (ax,) = figures.panels(["Loss by length of context"], "tokens of context", "nats per token", note)
        for (name, title), runs in zip(GROUP.items(), losses, strict=True):
            figures.band(ax, lengths, runs, title, *LINES[name])
        ax.set_xscale("log", base=2)
        ax.set_xticks(lengths, map(str, lengths))
        figures.legend(ax)
        figures.save(figure, study.plot_path())
    study.publish("\n\n".join([*parts, study.about(jobs)]), "loss by tokens of context, for each model")


if __name__ == "__main__":
    run(main)
