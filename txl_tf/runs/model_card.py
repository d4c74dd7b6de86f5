"""A model card, a README.md: what a model_dir holds, where it is from, what it can do and how to use it.

Everything in the card comes from the files of the model_dir and from results that are given. A card that was changed
by hand is not overwritten: the first line has a checksum of the rest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from txl_tf import families
from txl_tf.data.tables.columns import table_columns
from txl_tf.errors import InputError
from txl_tf.metrics import error_files
from txl_tf.runs import model_dir as model_dirs
from txl_tf.runs.checkpoints import checkpoint_path, checkpoint_steps, stored_weights
from txl_tf.runs.parameters import frozen_paths, weights_table
from txl_tf.settings.run import Config
from txl_tf.storage.files import joined, read_bytes, write_atomically
from txl_tf.storage.strict_json import NUMBER, parse_json

CARD_FILE = "README.md"
PICTURE_FILE = "learning_curve.png"
_AUTHOR = "scripts/describe_model.py of txl_tf"
_FIRST_LINE = f"<!-- {_AUTHOR} wrote this file; sha256 of the lines below: {{}} -->\n"
_SIZES = {"vocab_size", "n_layer", "d_model", "d_embed", "n_head", "d_head", "d_inner", "mem_len", "n_class"}
_NO_RECIPE = {
    *("warm_start", "origin", "profile_steps", "peak_tflops", "jit_compile", "steps_per_loop"),
    *("log_steps", "save_steps", "eval_steps", "eval_tokens", "keep_checkpoints"),
}
"""Settings of training that change no weight, and one that the card shows elsewhere."""
_INSTALLED = os.path.isdir(os.path.join(os.path.dirname(os.path.dirname(__file__)), "commands"))
"""Whether a wheel was installed, which has the files of scripts/ as commands of `txl`."""
_EXPORT = "python scripts/export_savedmodel.py --model_dir={dir} --export_dir=exports/model"


@dataclasses.dataclass(frozen=True)
class Card:
    """A model card.

    text: Markdown.
    picture: the learning curve as a PNG, to which the text refers; None: the model_dir has none.
    """

    text: str
    picture: bytes | None


@dataclasses.dataclass(frozen=True)
class _Known:
    """The contents of a model_dir, with the `facts` of its corpus, and results that are given."""

    model_dir: str
    config: Config
    facts: Mapping[str, Any]
    evaluated: list[dict[str, Any]]
    results: Sequence[Mapping[str, Any]]
    task: families.Task


def describe_model(model_dir: str, results: Sequence[Mapping[str, Any]] = ()) -> Card:
    """The card of a model_dir, of any family and task, with results as `read_results` returns them.

    InputError if there is no model in `model_dir`, or a file in it cannot be read.
    """
    config, steps = model_dirs.read_config(model_dir), checkpoint_steps(model_dir)
    if config is None or not steps:
        raise InputError(
            f"{model_dir} has no {'checkpoint' if config else model_dirs.CONFIG_FILE}: give a trained model"
        )
    facts = model_dirs.read_corpus_facts(model_dir)
    weights = stored_weights(checkpoint_path(model_dir, steps[-1]))
    trained = model_dirs.read_log(joined(model_dir, model_dirs.METRICS_FILE))
    evaluated = model_dirs.read_evaluations(model_dir)
    known = _Known(model_dir, config, facts, evaluated, results, families.task_of(config))
    curve = _picture(known, trained)
    files = {name: joined(model_dir, name) for name in error_files.NAMES}
    texts = {
        name: read_bytes(path).decode("utf-8", "replace") for name, path in files.items() if tf.io.gfile.exists(path)
    }
    sections: dict[str, Iterable[str]] = {
        "": _introduction(known, steps, sum(map(math.prod, weights.values()))),
        "Result": _results(known),
        "Errors": error_files.in_a_card(texts),
        "How to use it": _use(known),
        "Limits": _limits(known),
        "Learning curve": [f"![loss against steps]({PICTURE_FILE})"] if curve else [],
        "Data": _data(known),
        "Sizes": _settings_table(config.model, _SIZES, {"mem_len"} if _alone(config) else ()),
        "Recipe": _recipe(config, trained, model_dirs.last_bad_step(model_dir)),
        "Weights": [
            weights_table(weights, frozen_paths(config.train.freeze, weights)),
            "\n`--freeze` takes these names or their beginnings, and layers such as `layers:0-3`.",
        ],
    }
    if _INSTALLED:
        sections = {title: (_as_installed(line) for line in lines) for title, lines in sections.items()}
    parts = [(f"## {title}\n\n" if title else "") + "\n".join(lines) for title, lines in sections.items()]
    return Card("\n\n".join(part.rstrip() for part in parts if not part.endswith("\n\n")) + "\n", curve)


def write_card(model_dir: str, card: Card) -> None:
    """Writes a card and its picture into a model_dir.

    InputError if there is a file of either name that this function did not write, or that was changed since.
    """
    path, picture = joined(model_dir, CARD_FILE), joined(model_dir, PICTURE_FILE)
    remedy = "move it away, or use --nowrite"
    if tf.io.gfile.exists(path):
        first, _, rest = read_bytes(path, remedy).partition(b"\n")
        if first.decode("utf-8", "replace") + "\n" != _first_line(rest):
            raise InputError(f"{path} was written or changed by someone else and would be overwritten: {remedy}")
    if tf.io.gfile.exists(picture) and _AUTHOR.encode() not in read_bytes(picture, remedy)[:1024]:
        raise InputError(f"{picture} was not written by this command and would be overwritten: {remedy}")
    if card.picture:
        write_atomically(picture, card.picture)
    text = card.text.encode()
    write_atomically(path, _first_line(text).encode() + text)


def _first_line(rest: bytes) -> str:
    return _FIRST_LINE.format(hashlib.sha256(rest).hexdigest())


def read_results(path: str) -> dict[str, Any]:
    """The results that scripts/evaluate.py, finetune.py or predict.py wrote as a line of JSON, the last of a file.

    InputError if that is not a JSON object with numbers.
    """
    remedy = "give a file with the output of scripts/evaluate.py, or of predict.py --metrics"
    lines = read_bytes(path, remedy).decode("utf-8", "replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    found = parse_json(last, path, remedy)
    if not isinstance(found, dict) or not any(isinstance(value, NUMBER) for value in found.values()):
        raise InputError(f"{path} has no results in its last line: {remedy}")
    return found


def _introduction(known: _Known, steps: list[int], count: int) -> Iterator[str]:
    model_dir, config, guide = known.model_dir, known.config, known.task.guide
    yield f"# {_cell(model_dir.rstrip('/').rpartition('/')[2])}\n"
    purpose = guide.purpose if guide else f"is used for {config.task}"
    yield f"A model of the family {families.family_of(config).title} with {count:,} parameters, which {purpose}."
    if steps == [0]:
        yield "Its weights were imported, or have not been trained yet."
    else:
        yield f"It holds the weights after {', '.join(f'{step:,}' for step in steps)} updates."
        if config.task in families.tuned_configs():
            step, best = model_dirs.chosen_step(model_dir, config), model_dirs.best_step(model_dir)
            why = "the newest, since none was evaluated" if best is None else "the best on dev"
            yield f"Commands answer with those after {step:,}, {why}; `--checkpoint=latest` takes the newest."


def _settings_table(group: Any, always: Collection[str], never: Collection[str]) -> Iterator[str]:
    """The settings of a group that are not their defaults, as lines of a Markdown table; none if there are none."""
    rows = []
    for field in dataclasses.fields(group):
        value = getattr(group, field.name)
        if field.name not in never and (field.name in always or value != field.default):
            shown = ", ".join(map(str, value)) if isinstance(value, tuple) else f"{value}"
            shown = f"{value:.3g}" if isinstance(value, float) else shown
            rows.append(f"| {field.name} | {_cell(shown) or '(none)'} | {_cell(field.metadata['help'])} |")
    if rows:
        yield from ("| setting | value | meaning |", "|---|---|---|", *rows)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _data(known: _Known) -> Iterator[str]:
    config, facts = known.config, known.facts
    kind = facts["vocabulary"]["spec"].get("kind", "unknown")
    yield "| | |\n|---|---|"
    if isinstance(known.task, families.Pretraining):
        yield f"| corpus | {_cell(str(facts.get('dataset', 'unknown')))} |"
    yield f"| tokens | {_cell(facts['unit'])}s, {config.model.vocab_size:,} in the vocabulary (`{_cell(kind)}`) |"
    yield f"| fingerprint of the data | `{_cell(facts['fingerprint'])}` |"
    if config.train.warm_start:
        yield f"| first weights from | `{_cell(config.train.warm_start)}` |"
    if config.train.origin:
        yield f"| published as | `{_cell(config.train.origin)}` |"


def _recipe(config: Config, trained: list[dict[str, Any]], bad_step: int | None) -> Iterator[str]:
    yield "The settings that differ from the defaults; `config.json` has all.\n"
    for title, group, always in (
        ("Training", config.train, {"train_steps", "learning_rate", "seed"}),
        ("Batches", config.data, {"batch_size", "tgt_len"}),
        ("Objective", config.objective, set()),
    ):
        if table := list(_settings_table(group, always, _NO_RECIPE)):
            yield f"{title}:\n"
            yield from table
            yield ""
    speeds = sorted(line["tokens_per_sec"] for line in trained if isinstance(line.get("tokens_per_sec"), NUMBER))
    if speeds:
        epochs = next((line["epoch"] for line in reversed(trained) if isinstance(line.get("epoch"), NUMBER)), 0)
        yield f"Training read the data {epochs:.3g} times, {speeds[len(speeds) // 2]:,.0f} tokens/s in the median."
    if bad_step is not None:
        yield f"Some updates were skipped, since their loss or gradient was not finite; the last was step {bad_step:,}."


def _results(known: _Known) -> Iterator[str]:
    evaluated, task, model_dir = known.evaluated, known.task, shlex.quote(known.model_dir)
    if isinstance(task, families.FineTuning):
        yield from _outcome(known, task)
    rows: list[tuple[str, Mapping[str, Any]]] = []
    if evaluated:
        best, last = min(evaluated, key=model_dirs.score), evaluated[-1]
        part = "dev" if "metrics" in best else "valid"
        rows += [(f"{part}, during training: the best", best)]
        rows += [(f"{part}, during training: the last", last)] if last is not best else []
    rows += [(str(result.get("split", "given")), result) for result in known.results]
    if rows:
        yield "| on | step | result |\n|---|--:|---|"
        for where, row in rows:
            yield f"| {_cell(where)} | {row.get('step', '')} | {_measures(row, known)} |"
        yield ""
    else:
        yield "Nothing is recorded in this directory.\n"
    yield "Commands that give results:\n\n```bash"
    if isinstance(task, families.Pretraining):
        data_dir = shlex.quote(str(known.facts.get("data_dir", "DATA_DIR")))
        yield f"python scripts/evaluate.py --model_dir={model_dir} --data_dir={data_dir} --split=test"
    else:
        table = task.guide.table if task.guide else "LABELLED.tsv"
        yield f"python scripts/predict.py --model_dir={model_dir} --input={table} --metrics"
    yield "```"


def _outcome(known: _Known, task: families.FineTuning) -> Iterator[str]:
    facts, labels = known.facts, model_dirs.read_labels(known.model_dir)
    yield "| | |\n|---|---|"
    if task.tables:
        columns = table_columns(known.model_dir, None, labelled=True)
        asked = columns.label_columns or columns.label_column
        yield f"| question | {_cell(asked)}, from {_cell(columns.text_column)} |"
    if labels:
        shown = ", ".join(map(_cell, labels[:20])) + (f" and {len(labels) - 20:,} more" if len(labels) > 20 else "")
        yield f"| classes | {len(labels):,}: {shown} |"
    if counts := facts.get("examples"):
        table = _cell(str(facts.get("dataset", "unknown")))
        yield f"| rows | {counts['train']:,} of {table} to learn from, {counts['dev']:,} to evaluate on (dev) |"
    best = min(known.evaluated, key=model_dirs.score, default={})
    if {"metrics", "examples"} <= best.keys():
        _, shown = task.worth(best.get("baselines", {}) | best["metrics"] | {"examples": best["examples"]})
        yield f"| result on dev | {_cell(shown) or _measures(best, known)} |"
    yield ""


def _alone(config: Config) -> bool:
    """Whether a text has one segment, and so no memory."""
    return getattr(config, "max_segments", None) == 1


def _measures(row: Mapping[str, Any], known: _Known) -> str:
    metrics = row.get("metrics", row)
    if not isinstance(known.task, families.Pretraining):
        measured = {name: value for name, value in metrics.items() if isinstance(value, float)}
        shown = {"loss": row.get("loss")} | measured
    else:
        names = ("bpc" if known.facts["unit"] in ("byte", "char") else "ppl", "bits_per_byte", "loss")
        shown = {name: row.get(name) for name in names}
    texts = [f"{name} {value:.4g}" for name, value in shown.items() if isinstance(value, NUMBER)]
    counted = [f"{row[name]:,} {name}" for name in ("targets", "tokens", "examples") if isinstance(row.get(name), int)]
    memory = [f"mem_len {row['mem_len']:,}"] if isinstance(row.get("mem_len"), int) else []
    return _cell(", ".join([*texts, *counted[:1], *memory]))


def _as_installed(line: str) -> str:
    return re.sub(r"python scripts/(\w+)\.py", r"txl \1", line)


def _use(known: _Known) -> Iterator[str]:
    guide = known.task.guide
    if guide is None:
        yield "From Python: `txl_tf.runs.model_dir.load_trained`."
        return
    commands = f"{guide.commands}\n{_EXPORT}".replace("{dir}", shlex.quote(known.model_dir))
    yield f"```bash\n{commands}\n```\n"
    yield f"```python\n{guide.code.replace('{quoted}', json.dumps(known.model_dir))}\n```"


def _limits(known: _Known) -> Iterator[str]:
    config, evaluated, guide = known.config, known.evaluated, known.task.guide
    corpus = _cell(str(known.facts.get("dataset", "its data")))
    yield f"- It knows only its data ({corpus}), with its languages, subjects, errors and prejudices."
    if guide and guide.limit:
        yield f"- {guide.limit}"
    if collapsed := next((line["collapsed"] for line in evaluated[-1:] if line.get("collapsed")), None):
        yield f"- Its last evaluation reports a collapse: {_cell(str(collapsed))}."
    mem_len = 0 if _alone(config) else getattr(config.model, "mem_len", 0)
    memory = f", and a memory of {mem_len:,} before it" if mem_len else ""
    yield f"- It was trained on segments of {config.data.tgt_len:,} tokens{memory}."
    if all(result.get("split") in (None, "train", "valid", "dev") for result in known.results):
        chosen = "; the results above were used to choose among checkpoints" if evaluated else ""
        yield f"- This card has no result on test data{chosen}."
    yield "- The licence of the data is not known here."


def _picture(known: _Known, trained: list[dict[str, Any]]) -> bytes | None:
    """A PNG of the loss, and of the metric that chooses the best checkpoint; None if nothing is recorded."""
    unit, criterion = known.facts["unit"], known.task.criterion if isinstance(known.task, families.FineTuning) else None
    in_bits = unit in ("byte", "char") and criterion is None
    scale, label = (1 / math.log(2), f"bits per {unit}") if in_bits else (1, "nats")
    training, valid = (
        _points([(line, line.get("loss")) for line in lines], scale) for lines in (trained, known.evaluated)
    )
    if not training[0] and not valid[0]:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10 if criterion else 6, 3.6), layout="constrained")
    axes, *more = figure.subplots(1, 2 if criterion else 1, sharex=True, squeeze=False)[0]
    axes.plot(*training, color="#adb5bd", marker="." if len(training[0]) == 1 else "", label="train")
    axes.plot(*valid, color="#d9480f", marker="o", markersize=4, label="dev" if criterion else "valid")
    axes.set(xlabel="updates", ylabel=f"loss, {label}")
    axes.legend(frameon=False)
    if criterion:
        measured = [(line, line["metrics"].get(criterion)) for line in known.evaluated if "metrics" in line]
        more[0].plot(*_points(measured), color="#d9480f", marker="o")
        more[0].set(xlabel="updates", ylabel=f"{criterion.replace('_', ' ')} on dev")
        baselines = known.evaluated[-1].get("baselines", {})
        for dash, (name, value) in zip(("--", ":"), baselines.items(), strict=False):
            more[0].axhline(value, color="#495057", linestyle=dash, label=name.replace("_", " "))
        if baselines:
            more[0].legend(frameon=False)
    for one in (axes, *more):
        one.spines[["top", "right"]].set_visible(False)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120, metadata={"Software": _AUTHOR})
    return file.getvalue()


def _points(measured: Iterable[tuple[dict[str, Any], Any]], scale: float = 1.0) -> tuple[list[int], list[float]]:
    """Steps and scaled values of lines of a log and a value of each; without those that are not finite numbers."""
    found = [(line["step"], value) for line, value in measured if isinstance(value, NUMBER) and math.isfinite(value)]
    return [step for step, _ in found], [value * scale for _, value in found]
