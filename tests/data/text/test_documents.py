"""The ends of documents in corpora of subwords, by hand-made documents; and what XLNet's pairs make of them."""

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf
from pair_corpus import WORDS, small_model

from txl_tf.data import manifest
from txl_tf.data.describe import describe
from txl_tf.data.lanes import Shards
from txl_tf.data.prepare import prepare
from txl_tf.data.text import blocks, sources
from txl_tf.data.xlnet import pairs
from txl_tf.settings.pretraining import PairsConfig, PermutationLMConfig

EOD = 7


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "own.model"
    path.write_bytes(small_model())
    return str(path)


def tokens_of(corpus, split="train"):
    start = tf.constant(0, tf.int64)
    return next(iter(Shards(corpus, split).window(start, start, corpus.splits[split].tokens))).numpy()


def documents_of(corpus, split="train"):
    """The text between ends of documents."""
    ids = tokens_of(corpus, split)
    parts = np.split(ids, np.flatnonzero(ids == EOD) + 1)
    return [corpus.vocabulary.decode(part) for part in parts if len(part)]


def prepared(tmp_path, model, source, dataset="text", **settings):
    settings = {"vocab": "sentencepiece", "vocab_file": model} | settings
    return prepare(dataset, str(tmp_path / "corpus"), source=str(source), overwrite=True, **settings)


@pytest.fixture(params=[40, 1 << 20])
def block_bytes(request, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", request.param)


def test_each_of_many_files_is_a_document(tmp_path, model, block_bytes):
    texts = {f"{i:02d}.py": f"import lambda{i}\n\n\nclass while:\n    yield {i}" + "\n" * (i % 3) for i in range(60)}
    (tmp_path / "files").mkdir()
    for name, text in texts.items():
        (tmp_path / "files" / name).write_text(text)
    (tmp_path / "files" / "empty.py").write_text("\n\n")
    corpus = prepared(tmp_path, model, tmp_path / "files")
    assert corpus.document_ends == "file"
    for split in sources.SPLITS:
        expected = [text.rstrip("\n") + "\n\n" for name, text in texts.items() if sources.drawn_split(name) == split]
        assert documents_of(corpus, split) == expected
        assert tokens_of(corpus, split)[-1] == EOD
    assert "ends of documents: a token at the end of each file" in list(describe(corpus))


def test_blank_lines_end_the_documents_of_a_single_file(tmp_path, model, block_bytes):
    first, second, third = "one line\nits second\n\n", "after\n \n\n\t\n", "and this\n\n"
    (tmp_path / "text.txt").write_text("\n\n" + (first + second + third) * 40)
    corpus = prepared(tmp_path, model, tmp_path / "text.txt")
    assert corpus.document_ends == "blank_line"
    documents = documents_of(corpus)
    assert documents[0] == "\n\n" + first  # blank lines in front of all text end nothing
    assert documents[1:6] == [second, third, first, second, third]
    plain = prepared(tmp_path, model, tmp_path / "text.txt", vocab="bytes", vocab_file=None)
    text = "".join(documents)
    assert text == plain.vocabulary.decode(tokens_of(plain))  # only the mark is added
    assert plain.document_ends == ""


def test_documents_with_splits_of_their_own(tmp_path, model, block_bytes):
    written = [f"line {i}\nand more" for i in range(100)]
    (tmp_path / "text.txt").write_text("\n\n\n".join(written))
    corpus = prepared(tmp_path, model, tmp_path / "text.txt", documents="blank_line")
    for split in sources.SPLITS:
        expected = [text + "\n\n" for i, text in enumerate(written) if sources.drawn_split(f"text.txt#{i}") == split]
        assert documents_of(corpus, split) == expected


def test_articles_of_wikitext_are_documents(tmp_path, model, block_bytes):
    article = " \n = {} = \n \n Some text = with signs = \n = not a title\n \n = = A section = = \n \n More . \n"
    for split, count in (("train", 12), ("valid", 2), ("test", 1)):
        (tmp_path / f"wiki.{split}.tokens").write_text("".join(article.format(f"Name {i}") for i in range(count)))
    corpus = prepared(tmp_path, model, tmp_path, dataset="wt2")
    assert corpus.document_ends == "article"
    documents = documents_of(corpus)
    # The blank line in front of a title belongs to the article before it.
    assert documents[0] == article.format("Name 0") + " \n"
    assert documents[1:-1] == [article.format(f"Name {i}").removeprefix(" \n") + " \n" for i in range(1, 11)]
    assert documents[-1] == article.format("Name 11").removeprefix(" \n")
    assert len(documents_of(corpus, "valid")) == 2 and tokens_of(corpus, "test")[-1] == EOD


def test_which_sources_have_documents(tmp_path):
    assert sources.standard_library().document_ends == "file"
    for name in ("train.txt", "valid.txt", "test.txt"):
        (tmp_path / name).write_text("a")
    assert sources.text_files(str(tmp_path)).document_ends == "blank_line"  # a file is a split, not a document
    (tmp_path / "more.txt").write_text("a")
    assert sources.text_files(str(tmp_path), splits="shares").document_ends == "file"
    assert sources.TextSource(()).document_ends == ""  # as lm1b's


def test_accents_are_kept_on_request(tmp_path, model):
    """Japanese loses its voicing marks without them: XLNet's clean-up takes them for accents."""
    (tmp_path / "text.txt").write_text("\u304c\u304e caf\u00e9\n" * 100)
    for keep, shown in ((False, "\u304b\u304d cafe"), (True, "\u304c\u304e caf\u00e9")):
        corpus = prepared(tmp_path, model, tmp_path / "text.txt", vocab="xlnet", keep_accents=keep)
        assert corpus.vocabulary_spec["keep_accents"] is keep
        ids = corpus.vocabulary.encode("\u304c\u304e caf\u00e9")
        assert (ids.tolist() == corpus.vocabulary.encode(shown).tolist()) and corpus.request["keep_accents"] is keep


def test_a_model_without_the_token_marks_nothing(tmp_path, model):
    other = tmp_path / "other.model"
    other.write_bytes(small_model().replace(b"<eod>", b"<e0d>"))
    (tmp_path / "text.txt").write_text("one line\n\nafter\n\n" * 40)
    corpus = prepared(tmp_path, str(other), tmp_path / "text.txt")
    assert corpus.document_ends == "" and EOD not in tokens_of(corpus)


def test_corpora_of_earlier_versions_do_not_say(tmp_path, model):
    (tmp_path / "text.txt").write_text("one line\n\nafter\n\n" * 40)
    corpus = prepared(tmp_path, model, tmp_path / "text.txt")
    path = corpus.path("manifest.json")
    with open(path) as file:
        content = json.load(file)
    del content["document_ends"], content["checksum"]
    with open(path, "w") as file:
        json.dump(content, file)
    old = manifest.load_corpus(corpus.data_dir)
    assert old.document_ends is None and old.fingerprint == corpus.fingerprint
    assert not any(line.startswith("ends of documents") for line in describe(old))


def test_the_next_text_of_a_pair_as_the_official_code_has_it(tmp_path, model):
    """Official files: a sentence a line, a blank line ends a document; its <eod> belongs to the sentence before it."""
    draw = np.random.default_rng(0)
    lines = [" ".join(draw.choice(WORDS, draw.integers(2, 6))) + f" {i}\n" for i in range(900)]
    text = "".join(line + "\n" * (i % 4 == 3) for i, line in enumerate(lines))
    (tmp_path / "text.txt").write_text(text)
    corpus = prepared(tmp_path, model, tmp_path / "text.txt")
    ids, vocabulary = tokens_of(corpus), corpus.vocabulary

    official = []  # the number of each token's sentence
    for number, line in enumerate(lines):
        size = len(vocabulary.encode(line)) + (len(vocabulary.encode("\n")) + 1) * (number % 4 == 3)
        official += [number] * size
    official = np.array(official)[: len(ids)]
    begins = np.flatnonzero(np.diff(official)) + 1
    assert (ids[begins - 1] == EOD).sum() > 50 and EOD not in ids[begins]

    t_len, reuse_len = 64, 24
    rule = PermutationLMConfig(num_predict=11, perm_size=reuse_len)
    data = pairs.SplitPairs(corpus, "train", PairsConfig(1, t_len, bi_data=False), reuse_len, rule, (1, 2))
    next_after_document, follow = 0, 0
    for step, batch in enumerate(itertools.islice(data.batches(0), data.epoch_steps)):
        tokens, segments = batch.tokens[0].numpy(), batch.segments[0].numpy()
        begin = (step + 1) * reuse_len
        first = tokens[reuse_len:][segments[reuse_len:] == 0][:-1]
        second = tokens[segments == 1][:-1]
        np.testing.assert_array_equal(first, ids[begin : begin + len(first)])
        windows = np.lib.stride_tricks.sliding_window_view(ids, len(second))
        places = np.flatnonzero((windows == second).all(axis=1))
        near = places[(places > begin) & (places < begin + t_len - reuse_len - 3)]
        if len(second) > 8 and len(near):  # B is what follows A
            follow += 1
            assert near[0] in begins
            next_after_document += ids[near[0] - 1] == EOD  # as in the official code, it may be another document
    assert follow > 50 and next_after_document > 5
