"""Published models that are used without an import step."""

import base64
import functools
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import threading

import hub_server
import numpy as np
import processes
import pytest
import random_xlnet

import txl_tf
from txl_tf.data.vocabularies import XLNetVocabulary
from txl_tf.errors import InputError
from txl_tf.published import directly, hub_models
from txl_tf.published.exporting import export_checkpoint
from txl_tf.runs.model_card import describe_model
from txl_tf.runs.model_dir import load_trained

TEXT = "the River ____ a dash"


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A model_dir, and a folder of Hugging Face's with the same model."""
    folder = tmp_path_factory.mktemp("published")
    random_xlnet.write_model_dir(folder / "own", random_xlnet.with_prefix(XLNetVocabulary), n_layer=1)
    export_checkpoint(load_trained(str(folder / "own")), "huggingface", str(folder / "theirs"))
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(directly.CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_python_and_the_commands_take_a_folder(places, cache, capsys):
    model = txl_tf.load(str(places / "theirs"), progress=False)
    (folder,) = cache.iterdir()
    assert capsys.readouterr().err.splitlines()[-1] == f"{places}/theirs: imported, in {folder}"
    wanted = txl_tf.load(str(places / "own"), progress=False).fill(TEXT)
    assert [one.text for one in model.fill(TEXT)] == [one.text for one in wanted]
    np.testing.assert_allclose(model.fill(TEXT)[0].total, wanted[0].total, rtol=1e-5)
    done = processes.run(["scripts/fill.py", f"--model_dir={places}/theirs", f"--text={TEXT}"], cwd=processes.ROOT)
    assert done.returncode == 0, done.stderr
    assert [line.split("\t")[1] for line in done.stdout.splitlines()] == [one.text for one in wanted[:5]]
    assert [path.name for path in cache.iterdir()] == [folder.name]  # nothing was imported again
    assert directly.usable(str(places / "theirs")) == str(folder) and not capsys.readouterr().err  # said once
    text = cache.parent / "any.txt"
    text.write_text(TEXT.replace("____", "and") * 60)
    flags = [f"--model_dir={places}/theirs", f"--text_file={text}", "--nojit_compile"]
    done = processes.run(["scripts/evaluate.py", *flags], cwd=processes.ROOT)
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert line["batch_size"] == 2 and line["targets"] and line["bytes"] == len(text.read_bytes())
    text.write_text(TEXT)
    done = processes.run(["scripts/evaluate.py", *flags], cwd=processes.ROOT)
    assert done.returncode == 1 and "any.txt: 1 stretch of at least 509 tokens needs 509" in done.stderr
    assert done.stderr.endswith(": give a longer text\n")
    assert directly.usable(str(places / "own")) == str(places / "own")


def test_a_source_that_changes_is_imported_again(places, cache, tmp_path, monkeypatch):
    source = tmp_path / "model"
    source.mkdir()
    for path in (places / "theirs").iterdir():
        (source / path.name).write_bytes(path.read_bytes())
    (source / os.fsdecode(b"stray \xe9.txt")).write_text("its name is not UTF-8")
    first = directly.usable(str(source))
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"clamp_len": 7}))
    second = directly.usable(str(source))
    clamped = [
        json.loads(pathlib.Path(one, "config.json").read_text())["model"]["clamp_len"] for one in (first, second)
    ]
    assert first != second and clamped[0] != clamped[1] == 7
    marks = iter("ab")
    monkeypatch.setattr(directly, "_fingerprint", lambda path: next(marks))
    with pytest.raises(InputError, match=r"model changed while it was read: run the command again"):
        directly.usable(str(source))
    assert len(list(cache.iterdir())) == 2


def test_two_processes_at_once(places, cache):
    program = "import sys; from txl_tf.published import directly; print(directly.usable(sys.argv[1]))"
    command = ["-c", program, places / "theirs"]
    both = [processes.Popen(command, cwd=processes.ROOT, stdout=subprocess.PIPE) for _ in range(2)]
    found = [process.stdout.read().strip() for process in both]
    assert [process.wait() for process in both] == [0, 0]
    assert len(set(found)) == 1 and [str(path) for path in cache.iterdir()] == found[:1]
    assert load_trained(found[0]).step == 0


def test_what_cannot_be_imported_is_one_line(places, cache, tmp_path, monkeypatch):
    source = tmp_path / "model"
    source.mkdir()
    for name in ("config.json", "model.safetensors"):
        (source / name).write_bytes((places / "theirs" / name).read_bytes())
    with pytest.raises(InputError, match=r"there is no vocabulary next to .*; scripts/import_checkpoint\.py has flags"):
        directly.usable(str(source))
    (tmp_path / "no.zip").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"no\.zip"):
        directly.usable(str(tmp_path / "no.zip"))
    assert not cache.exists() or not list(cache.iterdir())
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(directly.CACHE, str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"cannot be written .*name another folder as \$TXL_TF_CACHE"):
        directly.usable(str(places / "theirs"))
    monkeypatch.setenv(directly.CACHE, "/proc")  # is there, and nobody can write to it: TensorFlow says so
    with pytest.raises(InputError, match=r"/proc/theirs-\w+ cannot be written .*name another folder as \$TXL_TF_CACHE"):
        directly.usable(str(places / "theirs"))


def test_an_import_that_lost_files_is_made_again(places, cache):
    folder = pathlib.Path(directly.usable(str(places / "theirs")))
    for damage in (
        lambda: next(folder.glob("*.index")).unlink(),
        lambda: (folder / "corpus.json").write_text("{}"),
        lambda: (folder / "files.json").unlink(),
    ):
        damage()
        assert directly.usable(str(places / "theirs")) == str(folder)
        assert load_trained(str(folder)).step == 0
    assert [path.name for path in cache.iterdir()] == [folder.name]


def test_a_model_of_the_hub(places, cache, tmp_path, monkeypatch, capsys):
    wanted = load_trained(str(places / "own")).model.get_weights()
    with hub_server.running() as hub:
        hub.used_here(monkeypatch, tmp_path / "home")
        monkeypatch.chdir(tmp_path)
        commit = hub.add_folder("own/small", places / "theirs")
        model = txl_tf.load("own/small", progress=False)
        origin = f"hf://own/small@{commit}"
        (folder,) = cache.iterdir()
        for mine, theirs in zip(model.network.get_weights(), wanted, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert capsys.readouterr().err.splitlines()[-1] == f"own/small: {origin}, imported, in {folder}"
        assert json.loads((folder / "config.json").read_text())["train"]["origin"] == origin
        assert f"| published as | `{origin}` |" in describe_model(str(folder)).text
        assert not any(line.endswith("README.md") for line in hub.asked)  # only what is read
        hub.asked.clear()
        assert directly.usable("hf://own/small@main") == str(folder)
        assert hub.asked == ["GET /api/models/own/small/revision/main"]
        config = (places / "theirs/config.json").read_bytes().replace(b'"clamp_len": -1', b'"clamp_len": 7')
        second = hub.add("own/small", {**hub.files("own/small"), "config.json": config})
        clamped = json.loads(pathlib.Path(directly.usable("own/small"), "config.json").read_text())
        assert clamped["model"]["clamp_len"] == 7 and clamped["train"]["origin"].endswith(second)
        assert directly.usable(f"own/small@{commit}") == str(folder)
        (tmp_path / "own/small").mkdir(parents=True)
        assert directly.usable("own/small") == "own/small"  # what is here wins
        assert directly.usable("own/other") == "own/other"  # a mistyped path asks nobody
        (tmp_path / "own").rename(tmp_path / "gone")
    shutil.rmtree(cache)  # and the server has stopped
    assert json.loads(pathlib.Path(directly.usable("own/small"), "config.json").read_text()) == clamped


def test_old_names_and_the_import_by_name(places, tmp_path, monkeypatch):
    with hub_server.running() as hub:
        commit = hub.add_folder("xlnet/xlnet-base-cased", places / "theirs")
        flags = ["--format=huggingface", "--source=xlnet-base-cased", f"--model_dir={tmp_path}/imported"]
        command = ["scripts/import_checkpoint.py", *flags]
        done = processes.run(command, cwd=processes.ROOT, env=hub.environment(tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    assert f"xlnet-base-cased: hf://xlnet/xlnet-base-cased@{commit}" in done.stderr.splitlines()
    assert load_trained(str(tmp_path / "imported")).config.train.origin.endswith(commit)


def test_faults_of_a_name_are_one_line(places, cache, tmp_path, monkeypatch):
    with hub_server.running() as hub:
        hub.used_here(monkeypatch, tmp_path / "home")
        good = {path.name: path.read_bytes() for path in (places / "theirs").iterdir()}
        hub.add("own/private", good, access="private")
        hub.add("own/broken", good | {"model.safetensors": good["model.safetensors"][:-9]})
        hub.add("own/bert", {"config.json": b'{"model_type": "bert"}', "model.safetensors": b"many bytes"})
        hub.add("own/empty", {"README.md": b""})
        hub.add(
            "own/fast", {name: good[name] for name in ("config.json", "model.safetensors")} | {"tokenizer.json": b"{}"}
        )
        for name, line in {
            "own/none": "^no folder own/none; the Hub has no model own/none, or it is private: correct the name",
            "own/private": "^no folder own/private; the Hub has no model own/private, or it is private",
            "own/bert@v2": "^no folder own/bert@v2; the Hub's model own/bert has no revision v2",
            "own/broken": r"models--own--broken/.*/model\.safetensors is damaged, .*: fetch it again",
            "own/bert": r"^hf://own/bert@\w+ is of model_type 'bert': only transfo-xl and xlnet",
            "own/empty": r"^hf://own/empty@\w+ has no config\.json$",
            "own/fast": r"no vocabulary next to .*, but tokenizer\.json, which is not read: copy spiece\.model there",
            "hf://datasets/own/data": "hf://datasets/own/data is not a model: give hf://OWNER/NAME",
        }.items():
            with pytest.raises(InputError, match=line) as error:
                directly.usable(name)
            assert "\n" not in str(error.value)
        assert not any("bert" in line and "safetensors" in line for line in hub.asked)  # its weights were not fetched
    with pytest.raises(InputError, match=r"^no folder own/never; the model own/never is not whole in .*out of reach"):
        directly.usable("own/never")
    assert not cache.exists() or not list(cache.iterdir())


def test_released_archives_by_name(tmp_path, monkeypatch, cache):
    """From a server that states size and MD5 as Google's storage does."""
    name, content = hub_models.NAMES[0], b"an archive"
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / name).write_bytes(content)
    stated = {"x-goog-hash": f"crc32c=AAAA, md5={base64.b64encode(hashlib.md5(content).digest()).decode()}"}

    class Handler(http.server.SimpleHTTPRequestHandler):
        def end_headers(self):
            for item in stated.items():
                self.send_header(*item)
            super().end_headers()

        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(hub_models, "PLACE", f"http://127.0.0.1:{server.server_port}")
        stated["x-goog-hash"] = stated["x-goog-hash"].replace("md5=", "md5=AAAA")
        with pytest.raises(InputError, match=r"cannot download cased_L-12_H-768_A-12\.zip .*its md5 is"):
            hub_models.local(name)
        stated["x-goog-hash"] = stated["x-goog-hash"].replace("md5=AAAA", "md5=")
        assert pathlib.Path(hub_models.local(name)).read_bytes() == content
        server.shutdown()
    assert pathlib.Path(hub_models.local(name)).read_bytes() == content  # without the server
    with pytest.raises(InputError, match=r"there is no file cased_L-24_.*\.zip, and http://127.* does not answer"):
        hub_models.local(hub_models.NAMES[1])
    assert hub_models.local("other.zip") == "other.zip"


@pytest.mark.slow
def test_the_commands_by_name_and_again_without_the_hub(places, cache, tmp_path):
    """Fine-tune, publish, predict and evaluate; a run that is continued keeps its commit."""
    rows = "".join(f"the River and {i} dashes,wet\na dash of {i},dry\n" for i in range(20))
    (tmp_path / "t.csv").write_text(f"text,label\n{rows}")
    tune = ["scripts/finetune.py", "--init=own/small", "--task=classification", f"--train={tmp_path}/t.csv"]
    tune += [f"--model_dir={tmp_path}/run", "--train_steps=2", "--batch_size=4", "--tgt_len=16", "--nojit_compile"]
    export = ["scripts/export_checkpoint.py", f"--model_dir={tmp_path}/run", f"--export_dir={tmp_path}/export"]
    predict = ["scripts/predict.py", "--model_dir=me/tuned", f"--input={tmp_path}/t.csv"]
    (tmp_path / "any.txt").write_text(TEXT.replace("____", "and") * 60)
    evaluate = ["scripts/evaluate.py", "--model_dir=own/small", f"--text_file={tmp_path}/any.txt", "--nojit_compile"]

    def run(command):
        done = processes.run(command, cwd=processes.ROOT, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with hub_server.running() as hub:
        environment = hub.environment(tmp_path / "home") | {directly.CACHE: str(cache)}
        commit = hub.add_folder("own/small", places / "theirs")
        run(tune)
        hub.add("own/small", {**hub.files("own/small"), "README.md": b"new words"})
        run(tune)
        assert load_trained(f"{tmp_path}/run").config.train.origin == f"hf://own/small@{commit}"
        run(export)
        assert (tmp_path / "export/README.md").exists()
        hub.add_folder("me/tuned", tmp_path / "export")
        wanted = run(predict), json.loads(run(evaluate))["loss"]
    assert (run(predict), json.loads(run(evaluate))["loss"]) == wanted
