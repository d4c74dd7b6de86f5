"""A published checkpoint from its file to every command that takes a model_dir, and back out again."""

import json
import pathlib
import pickle
import re
import shlex
import shutil

import numpy as np
import processes
import published_files as files
import pytest
from published_reference import Sizes, torch_log_probs, torch_tensors
from random_model import random_model

from txl_tf.data.lanes import EvaluationLanes
from txl_tf.data.prepare import prepare
from txl_tf.data.vocabularies import WordVocabulary
from txl_tf.errors import InputError
from txl_tf.families.presets.transformer_xl import PRESETS
from txl_tf.inference.causal.language_model import LanguageModel
from txl_tf.models.transformer_xl.config import EvalConfig, TransformerXLConfig
from txl_tf.published.huggingface.transformer_xl import export
from txl_tf.published.importing import import_checkpoint, open_checkpoint
from txl_tf.published.vocabularies import read_vocabulary
from txl_tf.runs.checkpoints import variables_by_path
from txl_tf.runs.model_dir import load_trained, read_weights, vocabulary_identity

ROOT = pathlib.Path(__file__).parents[2]
WORDS = ["<eos>", "<unk>", "the", "of", *(f"w{i}" for i in range(19))]
SIZES = Sizes(vocab_size=len(WORDS), cutoffs=(5, 9, 17), div_val=2, untie_r=True, share=True)
BASE = {"n_layer": 2, "d_model": 8, "d_embed": 8, "n_head": 2, "d_head": 4, "d_inner": 12, "mem_len": 6}


def run(*command):
    done = processes.run(command, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def known_flags(script):
    return set(re.findall(r"--(?:\[no\])?(\w+)", run(script, "--helpfull")))


@pytest.fixture(scope="module")
def hugging_face(tmp_path_factory):
    """A directory as Hugging Face's save_pretrained leaves it, and its tensors."""
    folder = tmp_path_factory.mktemp("hugging_face")
    weights = torch_tensors(SIZES, np.random.default_rng(3), hugging_face=True)
    files.write_safetensors(folder / "model.safetensors", files.without_copies(weights))
    sizes = {name: value for name, value in vars(SIZES).items() if name not in ("share", "proj_same_dim")}
    (folder / "config.json").write_text(json.dumps(sizes | {"model_type": "transfo-xl", "dropout": 0.1}))
    (folder / "vocab.pkl").write_bytes(pickle.dumps(vars(files.Vocab(WORDS))))
    return folder, weights


@pytest.fixture(scope="module")
def model_dir(hugging_face, tmp_path_factory):
    """What scripts/import_checkpoint.py makes of it."""
    folder = tmp_path_factory.mktemp("runs") / "imported"
    source, _ = hugging_face
    output = run(
        "scripts/import_checkpoint.py", "--format=huggingface", f"--source={source}", "--dataset=text",
        f"--model_dir={folder}", "--batch_size=2", "--tgt_len=4",
    )  # fmt: skip
    assert "mem_len 5, clamp_len 4, same_length True (pytorch), mem_init zeros" in output
    return str(folder)


@pytest.mark.parametrize("name", ["old[1]", "back\\slash*"])
def test_a_folder_of_any_name_is_imported(name, hugging_face, model_dir, tmp_path):
    source = tmp_path / name
    shutil.copytree(hugging_face[0], source)
    command = ["--format=huggingface", "--dataset=text", f"--source={source}", f"--model_dir={tmp_path}/new[1]"]
    run("scripts/import_checkpoint.py", *command)
    expected, found = (load_trained(str(path)).model.get_weights() for path in (model_dir, tmp_path / "new[1]"))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_evaluate_gives_the_sources_loss(hugging_face, model_dir, tmp_path):
    draw, _, weights = np.random.default_rng(4), *hugging_face
    for split in ("train", "valid", "test"):
        lines = [" ".join(draw.choice(WORDS[1:], size=7)) for _ in range(6)]
        (tmp_path / f"{split}.txt").write_text("\n".join(lines) + "\n")
    corpus = prepare(
        "text",
        str(tmp_path / "data"),
        source=str(tmp_path / "*.txt"),
        vocab="words",
        vocab_file=f"{model_dir}/vocab.txt",
    )
    assert vocabulary_identity(corpus) == load_trained(model_dir).vocabulary_identity
    output = run(
        "scripts/evaluate.py",
        f"--model_dir={model_dir}",
        f"--data_dir={tmp_path}/data",
        "--split=test",
        "--nojit_compile",
    )
    result = json.loads(output.splitlines()[-1])

    batches = EvaluationLanes(corpus, "test", 1, corpus.split("test").tokens - 1).batches()
    ((inputs, targets),) = batches.as_numpy_iterator()
    total = 0.0
    for lane in np.array_split([inputs[0, 0], *targets[0]], 2):
        segments = [lane[:-1][start : start + 4] for start in range(0, len(lane) - 1, 4)]
        log_probs = np.concatenate(torch_log_probs(weights, SIZES, segments, hugging_face=True))
        total -= log_probs[np.arange(len(lane) - 1), lane[1:]].sum()
    assert result["tokens"] == targets.size - 1
    assert result["loss"] * result["tokens"] == pytest.approx(total, abs=1e-3)


def test_python_takes_it(hugging_face, model_dir):
    """Score and generation, whose greedy first token is the source's most likely one."""
    model, weights = LanguageModel.load(model_dir), hugging_face[1]
    ids = [WORDS.index("<eos>"), *model.vocabulary.encode("the w3")]
    (log_probs,) = torch_log_probs(weights, SIZES, [ids], hugging_face=True)
    np.testing.assert_allclose(model.score("the w3").log_probs, [log_probs[0, ids[1]], log_probs[1, ids[2]]], atol=1e-4)
    (log_probs,) = torch_log_probs(weights, SIZES, [ids[1:]], hugging_face=True)
    made = model.generate("the w3", max_tokens=1, temperature=0)
    assert made == model.vocabulary.decode([log_probs[-1].argmax()], after="the w3")


def test_a_model_dir_is_not_overwritten(hugging_face, model_dir):
    source, _ = hugging_face
    vocabulary = read_vocabulary(f"{source}/vocab.pkl", "text")
    with pytest.raises(InputError, match="is not empty: give a new --model_dir"):
        import_checkpoint(open_checkpoint("huggingface", str(source)), vocabulary, model_dir, dataset="text")


def test_the_vocabulary_must_fit(hugging_face, tmp_path):
    source, _ = hugging_face
    with pytest.raises(InputError, match="3 entries, the checkpoint 23"):
        import_checkpoint(
            open_checkpoint("huggingface", str(source)),
            WordVocabulary(["<eos>", "<unk>", "a"]),
            str(tmp_path),
            dataset="text",
        )


def test_export_and_import_again(hugging_face, model_dir, tmp_path):
    """Bit for bit, by the commands; the exported files are those that came in."""
    run("scripts/export_checkpoint.py", f"--model_dir={model_dir}", f"--export_dir={tmp_path}/exported")
    _, weights = hugging_face
    checkpoint = open_checkpoint("huggingface", f"{tmp_path}/exported")
    kept = {name for name in weights if "inv_freq" not in name}
    assert kept - set(checkpoint.file.shapes) == {name for name in kept if name.startswith("crit.")} - set(
        files.without_copies(weights)
    )
    for name in checkpoint.file.shapes:
        np.testing.assert_array_equal(checkpoint.file.read(name), weights[name])
    vocabulary = read_vocabulary(f"{tmp_path}/exported/vocab.txt", "text")
    import_checkpoint(checkpoint, vocabulary, f"{tmp_path}/again", dataset="text")
    first, second = load_trained(model_dir), load_trained(f"{tmp_path}/again")
    assert first.vocabulary_identity == second.vocabulary_identity
    assert_equal_weights(first.model, second.model)
    fresh = random_model(first.config.model)
    read_weights(model_dir, variables_by_path(fresh))  # as scripts/train.py --warm_start does
    assert_equal_weights(first.model, fresh)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"tie_weight": False, "pre_lnorm": True},
        {"cutoffs": (5, 9), "div_val": 2},
        {"cutoffs": (5, 9), "div_val": 2, "tie_weight": False, "untie_r": True, "proj_share_all_but_first": True},
        {"cutoffs": (5, 9), "d_embed": 6, "proj_share_all_but_first": True},
        {"tie_weight": False, "d_embed": 6},
    ],
)
def test_any_model_comes_back_bit_for_bit(tmp_path, settings):
    model = random_model(TransformerXLConfig(vocab_size=len(WORDS), **BASE | settings))
    vocabulary = WordVocabulary(WORDS)
    evaluation = EvalConfig(mem_len=7, clamp_len=-1, same_length=False)
    export(files.not_saved(model, vocabulary, evaluation=evaluation), f"{tmp_path}/out")
    config, _ = import_checkpoint(
        open_checkpoint("huggingface", f"{tmp_path}/out"), vocabulary, f"{tmp_path}/in", dataset="text"
    )
    assert (config.eval.mem_len, config.eval.clamp_len, config.eval.same_length) == (7, -1, False)
    assert_equal_weights(model, load_trained(f"{tmp_path}/in").model)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"activation": "gelu"}, "activation=gelu"),
        ({"attn_type": "shaw"}, "attn_type=shaw"),
        ({"d_embed": 6}, "one tied table with a tied projection"),
        ({"cutoffs": (5,), "div_val": 2, "proj_same_dim": False}, "proj_same_dim=False"),
        ({"div_val": 2}, "div_val=2 without cutoffs"),
        ({"tied_positions": True}, "tied_positions"),
    ],
)
def test_what_cannot_be_exported(tmp_path, settings, what):
    model = random_model(TransformerXLConfig(vocab_size=len(WORDS), **BASE | settings))
    with pytest.raises(InputError, match=f"has no {what}"):
        export(files.not_saved(model, WordVocabulary(WORDS), evaluation=EvalConfig()), str(tmp_path))


def assert_equal_weights(first, second):
    first, second = variables_by_path(first), variables_by_path(second)
    assert list(first) == list(second)
    for name, variable in first.items():
        np.testing.assert_array_equal(variable.numpy(), second[name].numpy(), err_msg=name)


def test_the_commands_of_the_page_have_these_flags():
    """docs/reproduce.md cannot be run here; its scripts and flags are at least there, and its presets."""
    text = (ROOT / "docs" / "reproduce.md").read_text().replace("\\\n", " ")
    commands = [shlex.split(line) for line in text.splitlines() if line.startswith("python ")]
    assert len(commands) == 24
    flags = {script: known_flags(script) for script in {script for _, script, *_ in commands}}
    for _, script, *arguments in commands:
        given = dict(argument.removeprefix("--").split("=", 1) for argument in arguments)
        assert set(given) <= flags[script], script
        assert given.get("preset") in (None, *PRESETS)
