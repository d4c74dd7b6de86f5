"""The package lm_eval evaluates a Transformer-XL: each number is that of `score` or `generate`."""

import dataclasses
import json
import math
import pathlib
import types

import numpy as np
import processes
import pytest
import random_xlnet
from random_model import CONFIG, random_model

import txl_tf
from txl_tf.data.vocabularies import WordVocabulary
from txl_tf.errors import InputError
from txl_tf.inference.causal.served_causal import ServedCausal
from txl_tf.inference.generation.generator import Generator

pytest.importorskip("lm_eval", reason="make test-clients has it")

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager

from txl_tf import harness

TRAINED = pathlib.Path(__file__).parents[1] / "model_dir_ce09e14" / "plain"
LONG = "import os\n" * 12
CHOICES = [" a", " bc", " def f():"]
DOCUMENTS = [LONG, "def f(x):\n    return x", "x" * 65]
CONTINUED = [("", "import"), ("import ", "os"), (LONG, "import"), (LONG, "def")]

TASKS = {
    "of_loglikelihood": {
        "output_type": "loglikelihood",
        "doc_to_text": "{{context}}",
        "doc_to_target": "{{target}}",
        "target_delimiter": "",
        "metric_list": [{"metric": "perplexity"}, {"metric": "acc"}],
    },
    "of_multiple_choice": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{context}}",
        "doc_to_target": 1,
        "doc_to_choice": CHOICES,
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    },
    "of_rolling": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{context}}",
        "metric_list": [{"metric": "word_perplexity"}, {"metric": "byte_perplexity"}, {"metric": "bits_per_byte"}],
    },
    "of_generate_until": {
        "output_type": "generate_until",
        "doc_to_text": "{{context}}",
        "doc_to_target": "{{target}}",
        "generation_kwargs": {"until": ["e", "\n"], "max_gen_toks": 50},
        "metric_list": [{"metric": "exact_match"}],
    },
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """A folder with a task of each type of output, over one file."""
    folder = tmp_path_factory.mktemp("tasks")
    documents = [
        {"context": context, "target": target} for context, target in [*CONTINUED, *((d, "x") for d in DOCUMENTS)]
    ]
    (folder / "data.json").write_text("".join(json.dumps(one) + "\n" for one in documents))
    for name, task in TASKS.items():
        data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(folder / "data.json")}}}
        (folder / f"{name}.yaml").write_text(json.dumps({"task": name, "test_split": "test", **data, **task}))
    return folder


@pytest.fixture(scope="module", params=["model_dir", "export"])
def models(request):
    """(HarnessModel, the model whose methods give its numbers)."""
    if request.param == "export":
        return harness.HarnessModel.of_export(
            request.getfixturevalue("byte_export"), batch_size=4
        ), request.getfixturevalue("byte_model")
    model = txl_tf.load(str(TRAINED), jit_compile=False, progress=False)
    return harness.HarnessModel.of(model, batch_size=4, jit_compile=False), model


def part(model, context, rest):
    """The log-probability of the rest of a text, from `score`."""
    whole, before = model.score([context + rest, context.rstrip()])
    return float(np.sum(whole.log_probs[len(before.ids) :], dtype=np.float64))


def test_a_task_of_each_type_of_output(models, tasks):
    model, own = models
    found = lm_eval.simple_evaluate(
        model,
        tasks=list(TASKS),
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        bootstrap_iters=0,
    )
    documents = [json.loads(line) for line in (tasks / "data.json").read_text().splitlines()]
    result = {
        name: {key.partition(",")[0]: value for key, value in line.items()} for name, line in found["results"].items()
    }

    totals = [part(own, one["context"], one["target"]) for one in documents]
    assert result["of_loglikelihood"]["perplexity"] == pytest.approx(math.exp(-np.mean(totals)), rel=1e-4)

    choices = np.array([[part(own, one["context"], choice) for choice in CHOICES] for one in documents])
    assert result["of_multiple_choice"]["acc"] == np.mean(choices.argmax(axis=1) == 1)
    by_letter = choices / [len(choice) for choice in CHOICES]
    assert result["of_multiple_choice"]["acc_norm"] == np.mean(by_letter.argmax(axis=1) == 1)

    texts = [one["context"] for one in documents]
    total, letters = sum(score.total for score in own.score(texts)), sum(len(text.encode()) for text in texts)
    assert result["of_rolling"]["bits_per_byte"] == pytest.approx(-total / letters / math.log(2), rel=1e-5)
    assert result["of_rolling"]["byte_perplexity"] == pytest.approx(math.exp(-total / letters), rel=1e-5)

    written = [own.generate(text, 50, stop=["e", "\n"], temperature=0) for text in texts]
    lines = sorted(found["samples"]["of_generate_until"], key=lambda line: line["doc_id"])
    assert [line["resps"][0][0] for line in lines] == written
    exact = [text == one["target"] for text, one in zip(written, documents, strict=True)]
    assert result["of_generate_until"]["exact_match"] == np.mean(exact)
    assert found["config"]["scored_tokens"] == model.scored > 0


def asked(kind, *args):
    return Instance(kind, {}, args, 0)


def test_conventions_of_the_harness(models):
    """Spaces at the end of a context belong to what follows; a request that is repeated is drawn anew."""
    model, own = models
    pairs = [("a ", "b"), ("a", " b"), ("", ""), ("", "a")]
    found = model.loglikelihood([asked("loglikelihood", *pair) for pair in pairs], disable_tqdm=True)
    assert found[0] == found[1] and found[2] == (0.0, True)
    assert found[3][0] == pytest.approx(own.score("a").total, rel=1e-4)
    assert model.loglikelihood_rolling([asked("loglikelihood_rolling", "")]) == [0.0]
    drawn = {"do_sample": True, "temperature": 0.9, "top_k": 40, "max_gen_toks": 40, "until": "\n"}
    texts = model.generate_until([asked("generate_until", LONG, drawn)] * 2)
    assert texts == [own.generate(LONG, 40, seed=seed, stop=["\n"], temperature=0.9, top_k=40) for seed in (0, 1)]
    with pytest.raises(InputError, match="a task sets num_beams"):
        model.generate_until([asked("generate_until", "a", {"num_beams": 4})])


def test_answers_are_kept_for_the_harness_as_they_come(models):
    model, _ = models
    kept = {}
    model.set_cache_hook(
        types.SimpleNamespace(add_partial=lambda kind, args, answer: kept.update({(kind, args[0]): answer}))
    )
    answers = model.loglikelihood([asked("loglikelihood", "a", "b")])
    assert kept == {("loglikelihood", "a"): answers[0]}


def test_unknown_words_are_counted():
    vocabulary = WordVocabulary(["<eos>", "<unk>", "a", "rose"])
    network = random_model(dataclasses.replace(CONFIG, vocab_size=4, same_length=True))
    served = ServedCausal(Generator(network, network.config.reach, jit_compile=False), vocabulary)
    names = ("encode", "initial_cache", "read", "step", "generate")
    model = harness.HarnessModel({name: getattr(served, name) for name in names}, 64, {}, {"pretrained": "words"})
    model.loglikelihood_rolling([asked("loglikelihood_rolling", "a rose is a rose")])
    assert "1 of 5 scored tokens (20.0%) are unknown words or pieces" in model.note
    assert model.get_model_info() == {"pretrained": "words", "scored_tokens": 5, "unknown_tokens": 1}
    model.loglikelihood([asked("loglikelihood", "is is is", " a")])  # only the scored part counts
    assert (model.scored, model.unknown) == (6, 1)


def test_other_models_are_refused(tmp_path, monkeypatch, byte_export):
    random_xlnet.write_model_dir(tmp_path / "xlnet", random_xlnet.with_prefix())
    with pytest.raises(InputError, match="which is not trained to continue texts"):
        harness.HarnessModel.of(txl_tf.load(str(tmp_path / "xlnet"), progress=False))
    with pytest.raises(InputError, match="is not a SavedModel that can be loaded"):
        harness.HarnessModel.of_export(str(tmp_path))
    for names, message in ((["fill", "generate"], "holds an XLNet"), (["generate"], "lacks the signature `read`")):
        signatures = dict.fromkeys(names)
        monkeypatch.setattr(
            harness, "load_saved_model", lambda path, found=signatures: types.SimpleNamespace(signatures=found)
        )
        with pytest.raises(InputError, match=message):
            harness.HarnessModel.of_export(byte_export)


def run(*flags):
    return processes.run(["scripts/harness.py", *flags], cwd=processes.ROOT)


def test_the_command(tasks, tmp_path):
    """Its numbers are those from Python; lm_eval prints its table and writes its files."""
    flags = ["--tasks", "of_rolling,of_loglikelihood", "--limit=3", "--log_samples", "--batch_size=2"]
    done = run(f"--model_dir={TRAINED}", f"--include_path={tasks}", f"--output_path={tmp_path}", *flags)
    assert done.returncode == 0, done.stderr
    assert "|of_rolling" in done.stdout and "|of_loglikelihood" in done.stdout
    texts = [json.loads(line)["context"] for line in (tasks / "data.json").read_text().splitlines()[:3]]
    total = sum(score.total for score in txl_tf.load(str(TRAINED), progress=False).score(texts))
    (file,) = tmp_path.glob("*/results_*.json")
    found = json.loads(file.read_text())["results"]["of_rolling"]["byte_perplexity,none"]
    assert found == pytest.approx(math.exp(-total / len("".join(texts).encode())), rel=1e-4)
    assert len(list(tmp_path.glob("*/samples_*.jsonl"))) == 2


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--tasks=nothing_like_it"], "lm_eval: Tasks not found: nothing_like_it"),
        ([], "error: give --tasks: names of tasks, separated by commas"),
        (["--tasks=of_rolling", "--model=hf"], "--model is not for this command"),
        (["--tasks=of_rolling", "--batch_size=auto"], "--batch_size=auto must be a number"),
        (["--tasks=of_rolling", "--limits=3"], "lm_eval: unrecognized arguments: --limits=3"),
        (["--tasks=of_rolling", "--export_dir=x"], "give either --model_dir or --export_dir"),
    ],
)
def test_a_wrong_flag_gets_one_line(flags, message, tasks):
    done = run(f"--model_dir={TRAINED}", f"--include_path={tasks}", *flags)
    assert done.returncode == 1 and message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_settings_of_a_model_dir_are_not_for_an_export(byte_export):
    done = run(f"--export_dir={byte_export}", "--dtype=mixed_bfloat16", "--tasks=of_rolling")
    assert done.returncode == 1 and "--dtype is for a --model_dir" in done.stderr


def test_precision_and_memory_are_those_of_load():
    model = txl_tf.load(
        str(TRAINED), jit_compile=False, progress=False, mem_len=5, dtype="mixed_bfloat16", quantize="int8"
    )
    found = harness.HarnessModel.of(model, jit_compile=False)
    info = found.get_model_info()
    assert (info["mem_len"], info["dtype"], info["quantize"]) == (5, "bfloat16", "int8")
    wanted = model.score("import os\n").total
    (total,) = found.loglikelihood_rolling([asked("loglikelihood_rolling", "import os\n")])
    assert total == pytest.approx(wanted, rel=1e-3)
