"""Words with tags: files, where words stand, and examples."""

import pytest
import random_xlnet
import tagged_files
import tensorflow as tf

from txl_tf.data.examples.example_set import ExamplePlan
from txl_tf.data.tables.columns import Columns
from txl_tf.data.vocabularies import XLNetVocabulary
from txl_tf.errors import InputError
from txl_tf.tasks.tagging import XLNetTaggingConfig, graph
from txl_tf.tasks.tagging.examples import MARKS, NOTHING, tagged_examples
from txl_tf.tasks.tagging.texts import read_tagged, untagged
from txl_tf.tasks.tagging.words import word_places

TEXTS = ["", " ", "EU rejects Germany's 2_x lamb.", "na\u00efve \u0905\u0902 \U0001f600\U0001f600 a\u200bb\n\tc", "(x)"]
SIGNS = "他在John的東京タワー。葛\U000e0100城 か\u3099き ㍿々\u3007 ｶﾅ 한국어 \U00020bb7野"


@pytest.mark.parametrize("name", ["a.conll", "a.jsonl"])
def test_both_kinds_of_file_hold_the_same_texts(tmp_path, name):
    rows = tagged_files.sentences(5)
    for found, (words, tags) in zip(
        read_tagged(tagged_files.write(tmp_path / name, rows), Columns()), rows, strict=True
    ):
        assert (found.words, list(found.tags), found.text) == (words, tags, " ".join(words))
    unlabelled = read_tagged(str(tmp_path / name), Columns(), labelled=False)
    assert [row.words for row in unlabelled] == [words for words, _ in rows]
    assert not any(row.tags for row in unlabelled)


def test_tabs_keep_spaces_and_the_last_text_needs_no_empty_line(tmp_path):
    (tmp_path / "a.txt").write_text("New York\tB-LOC\r\nis\tO\r\n\r\n\r\nfar\tO")
    assert [row.words for row in read_tagged(str(tmp_path / "a.txt"), Columns())] == [["New York", "is"], ["far"]]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.conll", "word\n", r"line 1 has a word without a tag"),
        ("a.conll", "a x O\nb O\n", r"line 2 has 2 columns, and the first line has 3"),
        ("a.conll", "\n\n", "has no texts"),
        ("a.jsonl", '{"tokens": ["a"], "tags": []}', "1 token and 0 tags"),
        ("a.jsonl", '{"tokens": ["a"], "tags": [3]}', "number 3 as tag: give --label_names=O,B-PER"),
        ("a.jsonl", '{"tokens": [" "], "tags": ["O"]}', "token 1 must be a text"),
        ("a.jsonl", '{"text": "a"}', "has no words with tags"),
        ("a.jsonl", '{"tokens": [], "tags": []}', "has no words"),
    ],
)
def test_faults_name_the_line(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=said):
        read_tagged(str(tmp_path / name), Columns())


def test_words_of_a_text_are_runs_of_letters_and_single_signs():
    text = TEXTS[2]
    assert [text[b:e] for b, e in word_places(text)] == ["EU", "rejects", "Germany", "'", "s", "2_x", "lamb", "."]


@pytest.mark.parametrize("runs", [False, True])
def test_words_in_the_graph_are_those_in_numpy(runs):
    texts = [*TEXTS, SIGNS]
    found = graph.word_places(tf.constant(texts), runs)
    for text, begin, end in zip(texts, found.begin.to_list(), found.end.to_list(), strict=True):
        assert list(zip(begin, end, strict=True)) == word_places(text, runs)


def test_each_han_or_kana_sign_is_a_word():
    one_by_one = "他 在 John 的 東 京 タ ワ ー 。 葛\U000e0100 城 か\u3099 き ㍿ 々 \u3007 ｶ ﾅ 한국어 \U00020bb7 野"
    assert [SIGNS[b:e] for b, e in word_places(SIGNS)] == one_by_one.split()
    in_runs = "他在John的東京タワー 。 葛\U000e0100城 か\u3099き ㍿ 々\u3007 ｶﾅ 한국어 \U00020bb7野"
    assert [SIGNS[b:e] for b, e in word_places(SIGNS, runs=True)] == in_runs.split()
    older, newer = (untagged(SIGNS, "text 1", runs) for runs in (True, False))
    assert (older.words, newer.words) == (in_runs.split(), one_by_one.split())


def test_a_text_without_words_has_none(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "\u200b"}\n{"text": "so"}\n')
    rows = read_tagged(str(tmp_path / "a.jsonl"), Columns(), labelled=False)
    assert [row.words for row in rows] == [[], ["so"]]
    settings = XLNetTaggingConfig().replace(data={"tgt_len": 24})
    vocabulary = random_xlnet.with_prefix(XLNetVocabulary)
    examples = tagged_examples(rows, ExamplePlan(settings, vocabulary, labels=("A", "B"), labelled=False))
    assert [len(one) for one in examples.of_words(examples.features["tokens"], 0)] == [0, 1]


def plan(vocabulary, max_segments, labels=None):
    config = XLNetTaggingConfig().replace(data={"tgt_len": 24, "max_segments": max_segments})
    return ExamplePlan(config, vocabulary, labels=labels)


@pytest.mark.parametrize("most", [1, 3])
def test_labels_stand_at_the_first_pieces(most):
    """Also where a text is longer than an example, and every word is in exactly one."""
    vocabulary = random_xlnet.with_prefix(XLNetVocabulary)
    words = ["River", "\u200b", "one", "dash-ed", "the"] * 6
    tags = [str(i % 7) for i in range(len(words))]
    row = untagged(words, "text 1", False)
    row = type(row)(row.text, row.places, tuple(tags), row.where)
    examples = tagged_examples([row], plan(vocabulary, most))
    tokens, label = examples.features["tokens"], examples.features["label"]
    assert tokens.shape[1] <= 24 * most
    assert (tokens[:, -MARKS:] == [vocabulary.special_token("sep"), vocabulary.special_token("cls")]).all()
    known = [tag for word, tag in zip(words, tags, strict=True) if word != "\u200b"]
    assert [examples.labels[tag] for tag in label[label >= 0]] == known
    pieces = vocabulary.pieces[tokens[label >= 0]]
    assert all(
        piece.strip("\u2581") and word.startswith(piece.strip("\u2581"))
        for piece, word in zip(pieces, [word for word in words if word != "\u200b"], strict=True)
    )
    (found,) = examples.of_words(label, NOTHING)
    assert found.tolist() == [
        NOTHING if word == "\u200b" else examples.labels.index(tag) for word, tag in zip(words, tags, strict=True)
    ]
    assert "6 words without a token" in " ".join(examples.remarks)


def test_an_unknown_tag_is_refused():
    row = untagged(["a"], "text 1", False)
    with pytest.raises(InputError, match="has the tag 'X', which the model does not know: it has O, B-A"):
        row = type(row)(row.text, row.places, ("X",), "f, line 1")
        tagged_examples([row], plan(random_xlnet.with_prefix(XLNetVocabulary), 1, ("O", "B-A")))
