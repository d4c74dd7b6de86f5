"""Whole preparations, held against a plain reading of the official code's rules."""

import collections
import dataclasses
import io
import json
import os
import re
import shutil
import signal
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import numpy as np
import processes
import pytest

from txl_tf.data import encoders, lanes, manifest
from txl_tf.data.describe import describe
from txl_tf.data.prepare import prepare
from txl_tf.data.text import blocks, sources
from txl_tf.data.vocabularies import subword_training
from txl_tf.errors import InputError
from txl_tf.settings.run import DataConfig

ROOT = Path(__file__).parents[2]
SCRIPT = [ROOT / "scripts" / "prepare_data.py"]


def ids_of(corpus, split, index=0):
    """All tokens of a split's pass, as the reader gives them."""
    tokens = corpus.splits[split].tokens
    if index:
        assert split == "train"
        pairs = list(lanes.TrainingLanes(corpus, DataConfig(batch_size=1, tgt_len=tokens - 1)).batches(index).take(1))
    else:
        pairs = list(lanes.EvaluationLanes(corpus, split, 1, tokens - 1).batches())
    ((inputs, targets),) = pairs
    return np.concatenate([inputs[0, :1], targets[0]])


def random_lines(rng, count, words):
    choice = rng.choice(words, size=(count, 12), p=np.arange(len(words), 0, -1) / (len(words) * (len(words) + 1) / 2))
    return "".join(" " + " ".join(line[: rng.integers(0, 12)]) + " \n" for line in choice)


@pytest.fixture
def word_files(tmp_path, rng, monkeypatch):
    """A folder of word files, with blocks small enough for many to be under way. Returns (folder, {split: text})."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(encoders, "_SHUFFLE_TOKENS", 500)
    words = [f"Word{i}" for i in range(150)] + ["<unk>", "naïve", "incomprehensibilities"]
    texts = {split: random_lines(rng, count, words) for split, count in (("train", 700), ("valid", 90), ("test", 90))}
    texts["valid"] += "only in valid"  # and no newline at the end
    for split, text in texts.items():
        (tmp_path / f"{split}.txt").write_text(text)
    return tmp_path, texts


def official_vocabulary(texts):
    counts = collections.Counter()
    for text in texts:
        counts.update(text.split())
    return list(dict.fromkeys(["<eos>", *(word for word, _ in counts.most_common())]))


def official_ids(text, vocabulary):
    ids = {word: i for i, word in enumerate(vocabulary)}
    lines = text.removesuffix("\n").split("\n")
    return [ids.get(word, ids["<unk>"]) for line in lines for word in [*line.split(), "<eos>"]]


@pytest.mark.parametrize(("dataset", "counted"), [("wt2", 3), ("ptb", 3), ("wt103", 1)])
def test_words_as_the_official_code_has_them(word_files, dataset, counted):
    folder, texts = word_files
    if dataset == "ptb":
        texts = {split: text.lower() for split, text in texts.items()}
    corpus = prepare(dataset, str(folder / "corpus"), source=str(folder))
    vocabulary = official_vocabulary([texts[split] for split in sources.SPLITS[:counted]])
    assert (folder / "corpus" / "vocab.txt").read_text().split("\n") == [*vocabulary, ""]
    assert corpus.vocab_size == len(vocabulary)
    for split, text in texts.items():
        np.testing.assert_array_equal(ids_of(corpus, split), official_ids(text, vocabulary))
    again = corpus.vocabulary.decode(ids_of(corpus, "test"))
    assert again.split() == [word if word in vocabulary else "<unk>" for word in texts["test"].split()]


def test_from_the_published_archive(word_files):
    folder, texts = word_files
    with zipfile.ZipFile(folder / "wikitext-2-v1.zip", "w") as file:
        for split, text in texts.items():
            file.writestr(f"wikitext-2/wiki.{split}.tokens", text)
    packed = prepare("wt2", str(folder / "a"), source=str(folder / "wikitext-2-v1.zip"))
    plain = prepare("wt2", str(folder / "b"), source=str(folder))
    assert packed.fingerprint == plain.fingerprint
    assert packed.unit == "word"
    assert sorted(os.listdir(folder / "a")) == [
        "manifest.json",
        "test-00000.tfrecord",
        "train-00000.tfrecord",
        "valid-00000.tfrecord",
        "vocab.txt",
    ]


def test_lm1b_marks_both_ends_and_shuffles_in_each_pass(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(encoders, "_SHUFFLE_TOKENS", 500)
    lines = {}
    with tarfile.open(tmp_path / "lm1b.tar.gz", "w:gz") as file:
        for name in ("news.en-00001-of-00100", "news.en-00002-of-00100", "news.en.heldout-00000-of-00050"):
            lines[name] = [" ".join(f"w{i}" for i in rng.integers(0, 90, rng.integers(1, 9))) for _ in range(300)]
            lines[name] += ["rare rare common common common"]
            data = "".join(line + "\n" for line in lines[name]).encode()
            info = tarfile.TarInfo(f"lm/{name}")
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    corpus = prepare("lm1b", str(tmp_path / "a"), source=str(tmp_path / "lm1b.tar.gz"), passes=3, seed=1)
    heldout = lines["news.en.heldout-00000-of-00050"]
    names = (tmp_path / "a" / "vocab.txt").read_text().split("\n")[:-1]
    assert names[:3] == ["<S>", "</S>", "<UNK>"]
    assert "common" in names

    def sentences(split, index=0):
        text = " ".join(names[i] for i in ids_of(corpus, split, index))
        assert text.startswith("<S> ")
        assert text.endswith(" <S>")
        return text.removeprefix("<S> ").removesuffix(" <S>").split(" <S> <S> ")

    assert "rare" in names  # four times in training
    assert sentences("test") == heldout
    assert sentences("valid") == heldout  # there is no other held-out part here
    train = lines["news.en-00001-of-00100"] + lines["news.en-00002-of-00100"]
    passes = [sentences("train", index) for index in range(3)]
    for index, order in enumerate(passes):
        assert sorted(order) == sorted(train)
        assert order not in [train, *passes[:index]]
    same_seed = prepare("lm1b", str(tmp_path / "b"), source=str(tmp_path / "lm1b.tar.gz"), passes=3, seed=1)
    assert same_seed.fingerprint == corpus.fingerprint
    other_seed = prepare("lm1b", str(tmp_path / "c"), source=str(tmp_path / "lm1b.tar.gz"), passes=3, seed=2)
    assert other_seed.fingerprint != corpus.fingerprint


def test_enwik8_as_the_official_code_has_it(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 700)
    data = rng.choice(np.frombuffer(b"etaoin \n\n\xc3\xa9Z", np.uint8), 20_000).tobytes() + b"QX"
    with zipfile.ZipFile(tmp_path / "enwik8.zip", "w") as file:
        file.writestr("enwik8", data)
    corpus = prepare("enwik8", str(tmp_path / "a"), source=str(tmp_path / "enwik8.zip"))
    parts = {"train": data[:-2000], "valid": data[-2000:-1000], "test": data[-1000:]}
    order = [byte for byte, _ in collections.Counter(b"".join(parts.values()).replace(b"\n", b"")).most_common()]
    assert [int(line) for line in (tmp_path / "a" / "vocab.txt").read_text().split()] == order
    for split, part in parts.items():
        expected = [order.index(byte) for byte in part.replace(b"\n", b"")]
        np.testing.assert_array_equal(ids_of(corpus, split), expected)
    reversed_ids(corpus, tmp_path, tmp_path / "enwik8.zip")
    lossless = prepare("enwik8", str(tmp_path / "b"), source=str(tmp_path / "enwik8.zip"), vocab="bytes")
    assert lossless.vocabulary.decode_bytes(ids_of(lossless, "train")) == parts["train"]


def test_text8_as_the_official_code_has_it(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 700)
    text = " " + "".join(rng.choice(list("abcdefg   "), 20_000 - 2)) + " "
    (tmp_path / "text8").write_text(text)
    corpus = prepare("text8", str(tmp_path / "a"), source=str(tmp_path / "text8"))
    parts = {"train": text[:-2000].strip(), "valid": text[-2000:-1000].strip(), "test": text[-1000:].strip()}
    order = [c for c, _ in collections.Counter("".join(parts.values())).most_common()]
    assert corpus.vocab_size == 8
    for split, part in parts.items():
        np.testing.assert_array_equal(ids_of(corpus, split), [order.index(c) for c in part])
    reversed_ids(corpus, tmp_path, tmp_path / "text8")


def reversed_ids(corpus, folder, source):
    """With a vocabulary of its own a corpus has that one's ids, as the published models need where counts are equal."""
    lines = (folder / "a" / "vocab.txt").read_text().splitlines()
    (folder / "vocab.txt").write_text("\n".join(reversed(lines)) + "\n")
    given = prepare(corpus.dataset, str(folder / "given"), source=str(source), vocab_file=str(folder / "vocab.txt"))
    for split in corpus.splits:
        np.testing.assert_array_equal(ids_of(given, split), corpus.vocab_size - 1 - ids_of(corpus, split))


@pytest.mark.parametrize("vocab", ["bytes", "chars", "words", "sentencepiece"])
def test_anyones_text(tmp_path, vocab):
    for split, text in {"train": "the cat sat on the mat\n" * 50, "valid": "the mat\n\nsat", "test": "the dog"}.items():
        (tmp_path / f"{split}.txt").write_text(text)
    size = 288 if vocab == "sentencepiece" else None
    corpus = prepare("text", str(tmp_path / "a"), source=str(tmp_path / "t*.txt"), vocab="bytes", splits="shares")
    corpus = prepare(
        "text", str(tmp_path / "a"), source=str(tmp_path / "*.txt"), vocab=vocab, vocab_size=size, overwrite=True
    )
    decoded = {split: corpus.vocabulary.decode(ids_of(corpus, split)) for split in corpus.splits}
    assert decoded["valid"] == "the mat\n\nsat\n\n"
    dog = {"words": "<unk>", "chars": "dog" if "d" in "the dog" else ""}.get(vocab, "dog")
    assert decoded["test"] == f"the {dog}\n\n"
    text = "\n".join(describe(corpus, example_tokens=12))
    assert f"{corpus.splits['train'].tokens:,} tokens" in text
    assert f"vocabulary of {corpus.vocab_size:,}" in text
    assert "valid begins: 'the" in text


def test_a_corpus_inside_its_own_text_is_refused(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat\n")
    with pytest.raises(InputError, match=r"is inside --source=.*, so the corpus would be read as text"):
        prepare("text", str(tmp_path / "data"), source=str(tmp_path))
    assert not (tmp_path / "data").exists()


def test_given_vocabularies(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat\n" * 100)
    (tmp_path / "list.txt").write_text("<unk> 9\nsat 5\nthe 4\n1\u00a0m 2\n1\u3000m 2\n<eos> 1\n")  # as Python 2 wrote
    source = {"source": str(tmp_path / "text.txt")}
    corpus = prepare("text", str(tmp_path / "a"), vocab="words", vocab_file=str(tmp_path / "list.txt"), **source)
    assert ids_of(corpus, "train")[:8].tolist() == [2, 0, 1, 5, 2, 0, 1, 5]
    trained = prepare("text", str(tmp_path / "b"), vocab="sentencepiece", vocab_size=278, **source)
    model = str(tmp_path / "b" / "sentencepiece.model")
    given = prepare("text", str(tmp_path / "c"), vocab="sentencepiece", vocab_file=model, **source)
    assert given.fingerprint == trained.fingerprint
    corpus = prepare("text", str(tmp_path / "d"), vocab="words", min_count=300, **source)
    assert corpus.vocab_size == 2  # <eos> and <unk>


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("<unk>\n<eos>\nthe 3\nsat\nthe 1\n", r"list.txt, line 5 has 'the', as line 3: every word has one line"),
        ("<unk>\nthe\n", r"list.txt has no <eos>: add it as a line of its own"),
    ],
)
def test_a_wrong_list_of_words_is_named_with_its_line(words, message, tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat\n" * 100)
    (tmp_path / "list.txt").write_text(words)
    with pytest.raises(InputError, match=message):
        prepare("text", str(tmp_path / "a"), source=str(tmp_path / "text.txt"), vocab="words",
                vocab_file=str(tmp_path / "list.txt"))  # fmt: skip


def test_what_is_no_sentencepiece_model_is_named(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat\n" * 100)
    for vocab in ("sentencepiece", "xlnet"):
        with pytest.raises(InputError, match=r"text.txt: not a SentencePiece model: give one, such as spiece.model"):
            prepare("text", str(tmp_path / "a"), source=str(tmp_path / "text.txt"), vocab=vocab,
                    vocab_file=str(tmp_path / "text.txt"))  # fmt: skip


def test_clusters_are_shown_for_cutoffs(word_files):
    folder, _ = word_files
    corpus = prepare("wt103", str(folder / "corpus"), source=str(folder))
    assert corpus.cutoffs == ()  # the published ones are beyond this vocabulary
    manifest.write_manifest(dataclasses.replace(corpus, cutoffs=(10, 100)))
    corpus = manifest.load_corpus(corpus.data_dir)
    ids = ids_of(corpus, "valid")
    line = next(line for line in describe(corpus) if line.startswith("valid: ids"))
    assert f"0-9 {np.mean(ids < 10):.2%}, 10-99 {np.mean((ids >= 10) & (ids < 100)):.2%}" in line


def test_prepared_already(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat\n" * 100)
    arguments = {"source": str(tmp_path / "text.txt")}
    first = prepare("text", str(tmp_path / "a"), **arguments)
    before = os.stat(tmp_path / "a" / "train-00000.tfrecord").st_mtime_ns
    assert prepare("text", str(tmp_path / "a"), **arguments) == first
    assert os.stat(tmp_path / "a" / "train-00000.tfrecord").st_mtime_ns == before
    with pytest.raises(
        InputError, match="holds a corpus made with vocab=None: give another --data_dir, or --overwrite"
    ):
        prepare("text", str(tmp_path / "a"), vocab="words", **arguments)
    assert prepare("text", str(tmp_path / "a"), vocab="words", overwrite=True, **arguments).unit == "word"


def test_a_source_that_has_changed_is_prepared_again_only_with_overwrite(tmp_path):
    texts, words = tmp_path / "texts", tmp_path / "words.txt"
    texts.mkdir()
    for name in ("a.txt", "b.txt"):
        (texts / name).write_text("the cat sat\n" * 100)
    words.write_text("the\ncat\nsat\n<eos>\n<unk>\n")
    arguments = {"source": str(texts), "vocab": "words", "vocab_file": str(words), "min_count": 1}

    def refused(said):
        with pytest.raises(InputError, match=rf"^{said}\): --overwrite prepares again$"):
            prepare("text", str(tmp_path / "d"), **arguments)

    first = prepare("text", str(tmp_path / "d"), **arguments)
    since = f"changed, come or gone since {tmp_path}/d was prepared "
    os.utime(texts / "a.txt", (1, 1))  # another time alone does not count
    (texts / ".hidden").write_text("not read")
    assert prepare("text", str(tmp_path / "d"), **arguments) == first
    (texts / "a.txt").write_text("the dog sat\n" * 100)
    (texts / "c.txt").write_text("new\n")
    refused(rf"2 files have {since}\({texts}/a\.txt, {texts}/c\.txt")
    assert prepare("text", str(tmp_path / "d"), overwrite=True, **arguments).splits != first.splits
    (texts / "c.txt").unlink()
    refused(rf"1 file has {since}\({texts}/c\.txt")
    again = prepare("text", str(tmp_path / "d"), overwrite=True, **arguments)
    words.write_text("the\ncat\ndog\n<eos>\n<unk>\n")
    refused(rf"1 file has {since}\({words}")
    shutil.rmtree(texts)  # a corpus may outlive its source
    assert prepare("text", str(tmp_path / "d"), **arguments) == again
    about = json.loads((tmp_path / "d" / "manifest.json").read_text())
    del about["sources"], about["checksum"]  # as an earlier version wrote it
    (tmp_path / "d" / "manifest.json").write_text(json.dumps(about))
    texts.mkdir()
    (texts / "a.txt").write_text("other\n")
    assert prepare("text", str(tmp_path / "d"), **arguments).splits == again.splits


def test_other_corpora_beside_a_published_one_are_no_change(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"wiki.{split}.tokens").write_text(" the cat sat\n" * 20)
    arguments = {"dataset": "wt2", "source": str(tmp_path)}
    first, _ = (prepare(data_dir=str(tmp_path / name), **arguments) for name in "ab")
    assert prepare(data_dir=str(tmp_path / "a"), **arguments) == first
    (tmp_path / "wiki.test.tokens").write_text(" the cat\n" * 20)
    with pytest.raises(InputError, match=r"^1 file has changed, .*wiki\.test\.tokens\): --overwrite"):
        prepare(data_dir=str(tmp_path / "a"), **arguments)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"dataset": "text"}, "needs --source"),
        ({"dataset": "python_stdlib", "source": "x"}, "omit --source"),
        ({"dataset": "text", "source": "x", "vocab": "sentencepiece"}, "needs either --vocab_size"),
        ({"dataset": "text", "source": "x", "vocab_size": 300}, "--vocab_size is for"),
        ({"dataset": "enwik8", "vocab": "bytes", "vocab_file": "x"}, "--vocab_file is for"),
        ({"dataset": "enwik8", "passes": 2}, "--passes are for vocabularies of words"),
        ({"dataset": "wt2", "source": "/nowhere/a.zip"}, r"/nowhere/a.zip not found: give the wikitext-2-v1.zip"),
    ],
)
def test_settings_that_do_not_fit(tmp_path, arguments, match):
    with pytest.raises(InputError, match=match) as error:
        prepare(data_dir=str(tmp_path / "a"), **arguments)
    assert "\n" not in str(error.value)


def test_without_apache_beam(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    monkeypatch.delitem(sys.modules, "txl_tf.data.large.pipelines", raising=False)
    (tmp_path / "text.txt").write_text("the cat\n" * 50)
    with pytest.raises(InputError, match=r"needs Apache Beam: run python -m pip install 'txl_tf\[beam\]'$"):
        prepare("text", str(tmp_path / "a"), source=str(tmp_path / "text.txt"), beam_args=[])


def test_sources_that_are_not_the_corpus(tmp_path):
    (tmp_path / "text.txt").write_text("the cat\n")
    (tmp_path / "cut.zip").write_bytes(b"PK\3\4 and no more")
    for dataset, source, match in (
        ("wt2", tmp_path, "has no train text of wt2"),
        ("wt2", tmp_path / "cut.zip", r"cut.zip is damaged"),
        ("text", tmp_path / "text.txt", "there is no (valid|test) text"),
    ):
        with pytest.raises(InputError, match=match):
            prepare(dataset, str(tmp_path / "a"), source=str(source))
    with pytest.raises(InputError, match="not found"):
        manifest.load_corpus(str(tmp_path / "a"))


def test_a_killed_run_leaves_no_corpus_and_the_next_one_is_whole(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 2_000_000)
    data_dir = tmp_path / "a"
    command = [*SCRIPT, "--dataset=text", f"--source={tmp_path / 'text.txt'}", f"--data_dir={data_dir}"]
    environment = {"PYTHONPATH": str(ROOT)}
    process = processes.Popen(command, env=environment)
    deadline = time.monotonic() + 60
    while not (data_dir / "train-00002.tfrecord").exists() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    with pytest.raises(InputError, match=r"manifest.json not found"):
        manifest.load_corpus(str(data_dir))
    (data_dir / "train-00099.tfrecord").write_text("of an older, longer text")
    done = processes.run(command, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "tokens" in done.stdout
    corpus = manifest.load_corpus(str(data_dir))
    assert sum(split.tokens for split in corpus.splits.values()) == os.path.getsize(tmp_path / "text.txt") + 3
    assert not (data_dir / "train-00099.tfrecord").exists()


def test_the_scripts_say_in_one_line_what_is_wrong(tmp_path):
    environment = {"PYTHONPATH": str(ROOT)}
    describe_script = [ROOT / "scripts" / "describe_data.py"]
    for command in ([*SCRIPT, "--dataset=text", "--source=/nowhere"], describe_script):
        done = processes.run([*command, f"--data_dir={tmp_path}"], env=environment, timeout=120)
        assert done.returncode == 1
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1
        assert "Traceback" not in done.stderr


def test_how_much_of_the_text_trained_a_subword_vocabulary(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("".join(f"the cat{i} sat\n" for i in range(1000)))
    options = {"source": str(tmp_path / "a.txt"), "vocab": "sentencepiece", "vocab_size": 300, "overwrite": True}
    corpus = prepare("text", str(tmp_path / "data"), **options)
    assert corpus.vocabulary_note == "SentencePiece learned from all of the training text"
    monkeypatch.setattr(subword_training, "_MAX_TRAINING_WORDS", 50)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(encoders, "_TRAINING_WORDS", 1000)
    note = prepare("text", str(tmp_path / "data"), **options).vocabulary_note
    said = r"SentencePiece learned from the first [\d,]+ words \([\d,]+ bytes\) of the training text, without its "
    assert re.fullmatch(said + r"rarest words \(\d\d\.\d %\)", note)
