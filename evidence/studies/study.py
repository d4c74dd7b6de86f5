"""Studies: variants of one preset, trained with several seeds, and the jobs for them. Not a script."""

import dataclasses
import json
import os
import pathlib
import re
import shlex
import signal
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags
from jobs import Job, read_record, run_jobs

from txl_tf.errors import InputError

FLAGS = flags.FLAGS
PIECES = 2000
"""Size of the vocabulary of the corpus that a study prepares."""


@dataclasses.dataclass(frozen=True)
class Scale:
    """A study at one size.

    Attributes:
        preset: of scripts/train.py.
        settings: flags of scripts/train.py that all variants have.
        variants: {name: flags over these}.
        seeds: each variant is trained once with each.
    """

    preset: str
    settings: Mapping[str, Any]
    variants: Mapping[str, Mapping[str, Any]]
    seeds: tuple[int, ...]

    def flags(self, variant: str) -> dict[str, Any]:
        """The flags of a variant, without seed and paths."""
        return {"preset": self.preset, **self.settings, **self.variants[variant]}


def define_flags(scales: Sequence[str] = ("small", "paper")) -> None:
    """The flags of all studies."""
    flags.DEFINE_string("out", None, "where runs and their results are written", required=True)
    flags.DEFINE_enum("scale", "small", scales, "small: for a CPU; paper: the recipe for a TPU")
    flags.DEFINE_integer("at_once", 1, "commands that run at a time; 0: only report the results so far", lower_bound=0)
    flags.DEFINE_string("only", ".", "a regular expression: run only the jobs whose names match")
    flags.DEFINE_bool("list", False, "print the commands, and run none")
    flags.DEFINE_string(
        "page", None, "a Markdown file: results replace everything after its line ---, and the plot is drawn beside it"
    )


def run_name(variant: str, seed: int) -> str:
    """The name of a variant's run with a seed."""
    return f"{variant}-{seed}"


def model_dir(variant: str, seed: int) -> str:
    """Where that run is."""
    return os.path.join(FLAGS.out, "runs", run_name(variant, seed))


def train_job(scale: Scale, variant: str, seed: int, data_dir: str, needs: tuple[str, ...] = ()) -> Job:
    """The training of a variant with a seed."""
    paths = {"data_dir": data_dir, "model_dir": model_dir(variant, seed)}
    return Job(run_name(variant, seed), "scripts/train.py", scale.flags(variant) | {"seed": seed} | paths, needs)


def evaluation_job(variant: str, seed: int, test: str, data_dir: str, settings: Mapping[str, Any]) -> Job:
    """An evaluation on the test split of that run; `settings` are flags of scripts/evaluate.py."""
    name = run_name(variant, seed)
    given = {"model_dir": model_dir(variant, seed), "data_dir": data_dir, "split": "test", **settings}
    return Job(f"{name}-{test}", "scripts/evaluate.py", given, (name,))


def corpus_jobs() -> tuple[str, list[Job]]:
    """Where the corpus is, and the jobs that prepare it: none if --data_dir is given."""
    if FLAGS.data_dir:
        return FLAGS.data_dir, []
    text, corpus = (os.path.join(FLAGS.out, name) for name in ("text", "corpus"))
    prepared = {"dataset": "text", "source": text, "vocab": "sentencepiece", "vocab_size": PIECES, "data_dir": corpus}
    excerpts = Job("text", "evidence/studies/excerpts.py", {"out": text})
    return corpus, [excerpts, Job("corpus", "scripts/prepare_data.py", prepared, ("text",))]


def run(jobs: Sequence[Job]) -> None:
    """Runs the jobs that the flags select, or prints them.

    Raises:
        InputError: as for `run_jobs`, or the flags select nothing.
    """
    chosen = [job for job in jobs if re.search(FLAGS.only, job.name)]
    if not chosen:
        raise InputError(f"--only={FLAGS.only} matches no job; names are {jobs[0].name}, .., {jobs[-1].name}")
    if FLAGS.list:
        for job in chosen:
            print(f"python {shlex.join(job.command)}")
        sys.exit()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run_jobs(chosen, folder(), FLAGS.at_once)


def run_and_report(
    scale: Scale, make_jobs: Callable[[Scale], list[Job]], report: Callable[[Scale, list[Job]], None]
) -> None:
    """Runs the jobs of a study at one size, and reports the results so far."""
    jobs = make_jobs(scale)
    run(jobs)
    report(scale, jobs)


def folder() -> str:
    """Where the jobs' records are."""
    return os.path.join(FLAGS.out, "jobs")


def results(scale: Scale, variant: str, test: str) -> dict[int, dict[str, Any]]:
    """{seed: the result of scripts/evaluate.py}, for the seeds whose test has ended."""
    records = {seed: read_record(folder(), f"{run_name(variant, seed)}-{test}") for seed in scale.seeds}
    return {seed: record["lines"][-1] for seed, record in records.items() if record.get("finished")}


def curves(scale: Scale, variant: str) -> list[list[tuple[int, float]]]:
    """The loss on valid of each seed's run that has begun: (step, loss) of each evaluation."""
    paths = (pathlib.Path(model_dir(variant, seed)) / "evaluations.jsonl" for seed in scale.seeds)
    logs = [[json.loads(line) for line in path.read_text().splitlines()] for path in paths if path.exists()]
    return [[(line["step"], line["loss"]) for line in lines] for lines in logs]


def publish(results: str, picture: str = "") -> None:
    """Prints results in Markdown; also writes them into --page, if given, below the plot, if there is one.

    `picture` says what the plot shows, for readers who cannot see it.
    """
    print(f"\n{results}")
    if FLAGS.page:
        page = pathlib.Path(FLAGS.page)
        about, line, _ = page.read_text().partition("\n---\n")
        if not line:
            raise InputError(f"--page={page} has no line ---, after which results would be written")
        plot = page.with_suffix(".svg")
        shown = f"![{picture}]({plot.name})\n\n" if plot.exists() else ""
        page.write_text(f"{about}{line}\n{shown}{results}\n")


def plot_path() -> str | None:
    """Where the plot is drawn: beside --page."""
    return str(pathlib.Path(FLAGS.page).with_suffix(".svg")) if FLAGS.page else None


def mean_and_spread(values: Sequence[float], digits: int = 3) -> str:
    """Mean and, of several values, half the distance between the largest and the smallest: "4.210 ± 0.012"."""
    if not values:
        return ""
    spread = f" ± {(max(values) - min(values)) / 2:.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def about(jobs: Sequence[Job]) -> str:
    """Commits, machines and processor hours of the jobs that have ended, and how many have not."""
    records = [read_record(folder(), job.name) for job in jobs]
    ended = [record for record in records if record.get("finished")]
    if not ended:
        return f"None of {len(jobs)} jobs has ended."
    hours = sum(record["cpu_seconds"] for record in ended) / 3600
    commits, machines = (sorted({record[key] for record in ended}) for key in ("commit", "machine"))
    left = f"; {len(jobs) - len(ended)} of {len(jobs)} jobs have not ended" if len(ended) < len(jobs) else ""
    return f"{hours:.2f} processor hours; commit {', '.join(commits)}; {', '.join(machines)}{left}."
