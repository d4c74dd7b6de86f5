"""The programs of examples/ that train or draw: each is run, with a small model."""

import collections
import importlib.util
import pathlib

import pytest
import random_xlnet
import tagged_files

import txl_tf

ROOT = pathlib.Path(__file__).parents[2]
FEW = {"train_steps": 4, "warmup_steps": 1, "jit_compile": False}


def program(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


@pytest.fixture(scope="module")
def xlnet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("xlnet")
    random_xlnet.write_model_dir(folder, random_xlnet.with_prefix())
    return str(folder)


@pytest.mark.parametrize("name", ["own_text", "table", "names", "own_sampler"])
def test_it_is_short(name):
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) <= 40


def test_own_text(tmp_path, capsys):
    (tmp_path / "text.txt").write_text("a text that says the same again and again\n" * 400)
    sizes = {"n_layer": 1, "d_model": 16, "d_embed": 16, "d_inner": 16, "d_head": 8, "tgt_len": 16, "mem_len": 16}
    evaluation = {"eval_tgt_len": 16, "eval_mem_len": 16, "eval_batch_size": 4, "eval_jit_compile": False}
    program("own_text")(str(tmp_path / "text.txt"), str(tmp_path), **FEW, **sizes, **evaluation)
    printed = capsys.readouterr().out
    assert "bits per byte of test" in printed and len(printed.split("The ")[-1]) > 20


def test_table(xlnet, tmp_path, capsys):
    rows = [f"a {word} day {i},{word}" for i in range(30) for word in ("good", "bad")]
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    program("table")(str(tmp_path / "t.csv"), str(tmp_path / "run"), xlnet, **FEW)
    printed = capsys.readouterr().out
    assert "accuracy on the tenth" in printed and printed.count("): a ") == 3


def test_names(xlnet, tmp_path, capsys):
    tagged_files.write(tmp_path / "n.conll", tagged_files.sentences(20))
    program("names")(str(tmp_path / "n.conll"), str(tmp_path / "run"), init=xlnet, **FEW)
    assert "F1 on the tenth" in capsys.readouterr().out


def test_own_sampler_says_nothing_twice(capsys):
    """Almost without chance, when other samplers soon go round in circles."""
    program("own_sampler")(tokens=150, temperature=1e-6)
    drawn = capsys.readouterr().out.split()
    prompt = "Once upon a time there was"
    greedy = txl_tf.load("fairy_tales", progress=False).generate(prompt, 150, temperature=0.0).split()
    assert " ".join(drawn).startswith(prompt) and len(drawn) > 60
    assert most_often(drawn) == 1 < most_often(greedy)


def most_often(words):
    """How often the most frequent five words in a row occur."""
    return max(collections.Counter(zip(*(words[i:] for i in range(5)), strict=False)).values())
