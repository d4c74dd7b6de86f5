import json

import numpy as np
import pytest
import tensorflow as tf
from random_xlnet import with_prefix

from txl_tf.data.vocabularies import (
    KINDS,
    ByteVocabulary,
    CharVocabulary,
    SubwordVocabulary,
    WordVocabulary,
    load_vocabulary,
)
from txl_tf.data.vocabularies.base import SpecialTokens
from txl_tf.data.vocabularies.subword_training import train
from txl_tf.errors import InputError

TEXTS = ["the cat sat\non the mat\n", "", "the  cat\n\n", "naïve \u3000日本\u2028x\ttab", "\n"]
WORDS = ["<eos>", "the", "<unk>", "cat", "sat", "on", "naïve"]


def subword_model():
    counts = {"the": 50, "cat": 20, "sat": 20, "mat": 10, "naïve": 5, "\n": 9}
    return train(counts, 9 + 256 + 11 + 11).model  # special pieces, bytes, characters, merges


VOCABULARIES = {
    "bytes": ByteVocabulary,
    "some bytes": lambda: ByteVocabulary([ord(c) for c in " tehcasonm?"], dropped=[10]),
    "chars": lambda: CharVocabulary(" etahcsonmïv\n"),
    "words": lambda: WordVocabulary(WORDS),
    "sentences": lambda: WordVocabulary(["<S>", "<UNK>", "the", *WORDS[3:]], "<S>", both_ends=True, unknown="<UNK>"),
    "lower case": lambda: WordVocabulary(WORDS, lower_case=True),
    "subwords": lambda: SubwordVocabulary(subword_model()),
}


@pytest.fixture(params=list(VOCABULARIES))
def vocabulary(request):
    return VOCABULARIES[request.param]()


def rows(ragged):
    return [row.numpy().tolist() for row in ragged]


def test_inside_the_graph_as_outside(vocabulary):
    texts = [*TEXTS, "The CAT"]
    expected = [vocabulary.encode(text) for text in texts]
    assert all(ids.dtype == np.int32 for ids in expected)
    ragged = tf.function(vocabulary.encode_tensor)(tf.constant(texts))
    assert ragged.dtype == tf.int32
    assert rows(ragged) == [ids.tolist() for ids in expected]
    decoded = tf.function(vocabulary.decode_tensor)(ragged).numpy()
    assert [text.decode() for text in decoded] == [vocabulary.decode(ids) for ids in expected]
    dense = np.array([vocabulary.encode("the cat"), vocabulary.encode("the sat")])
    assert vocabulary.decode_tensor(tf.constant(dense)).numpy().tolist() == [b"the cat", b"the sat"]


def test_ids_come_back(vocabulary):
    for text in TEXTS:
        ids = vocabulary.encode(text)
        np.testing.assert_array_equal(vocabulary.encode(text.encode()), ids)
        np.testing.assert_array_equal(vocabulary.encode(vocabulary.decode(ids)), ids)
        assert ((ids >= 0) & (ids < vocabulary.vocab_size)).all()


def test_text_comes_in_pieces(vocabulary):
    ids = vocabulary.encode("the cat sat\non the")
    pieces = [vocabulary.decode_bytes([token]) for token in ids]
    assert b"".join(pieces) == vocabulary.decode_bytes(ids)


@pytest.mark.parametrize("name", [*VOCABULARIES, "prefix"])
def test_a_text_goes_on_after_another(name):
    """Cut anywhere, decoded in pieces of any size, in the graph or outside: the parts joined are the whole text."""
    vocabulary = VOCABULARIES[name]() if name in VOCABULARIES else with_prefix()
    text = "the cat sat" if name == "prefix" else "the cat sat\non the mat"
    ids = vocabulary.encode(text)
    whole = vocabulary.decode(ids)
    for cut in range(len(ids) + 1):
        if name == "sentences" and ids[cut - 1 : cut + 1].tolist() == [0, 0]:
            continue  # within the two marks of one end of a line
        before, rest = vocabulary.decode(ids[:cut]), ids[cut:]
        assert before + vocabulary.decode(rest, after=before) == whole
        in_graph = vocabulary.decode_tensor(np.stack([rest] * 2), tf.constant([before, before + " "])).numpy()
        assert in_graph[0].decode() == vocabulary.decode(rest, after=before)
        assert in_graph[1].decode() == vocabulary.decode(rest, after=before + " ")
        piecewise = vocabulary.decoder(before)
        assert b"".join(piecewise([token]) for token in rest) == in_graph[0]
        if name in ("words", "prefix"):  # whose tokens say nothing of the space that the text before has
            assert not in_graph[1].startswith(b" ")


def test_on_disk(vocabulary, tmp_path):
    vocabulary.save(str(tmp_path))
    again = load_vocabulary(str(tmp_path), json.loads(json.dumps(vocabulary.spec)))
    assert (again.vocab_size, again.start_token, again.spec) == (
        vocabulary.vocab_size,
        vocabulary.start_token,
        vocabulary.spec,
    )
    for text in TEXTS:
        np.testing.assert_array_equal(again.encode(text), vocabulary.encode(text))
    assert 0 <= again.start_token < again.vocab_size


class Served(tf.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.vocabulary = vocabulary

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, texts):
        return self.vocabulary.decode_tensor(self.vocabulary.encode_tensor(texts))


def test_in_a_saved_model(vocabulary, tmp_path):
    tf.saved_model.save(Served(vocabulary), str(tmp_path))
    served = tf.saved_model.load(str(tmp_path))
    expected = [vocabulary.decode(vocabulary.encode(text)).encode() for text in TEXTS]
    assert served(tf.constant(TEXTS)).numpy().tolist() == expected


@pytest.mark.parametrize("name", ["bytes", "subwords"])
def test_exact_round_trip(name):
    vocabulary = VOCABULARIES[name]()
    for text in [*TEXTS, "\r\n \x00 \u00a0é€😀", "  two  spaces  ", "\n\n\n"]:
        assert vocabulary.decode(vocabulary.encode(text)) == text


def test_all_bytes_are_themselves():
    data = bytes(range(256))
    vocabulary = ByteVocabulary()
    assert vocabulary.encode(data).tolist() == list(range(256))
    assert vocabulary.decode_bytes(range(256)) == data
    assert vocabulary.start_token == ord("\n")


def test_bytes_that_are_not_listed():
    vocabulary = ByteVocabulary([ord(c) for c in "ab?"], dropped=[10])
    assert vocabulary.decode(vocabulary.encode("a\nbX")) == "ab?"
    assert ByteVocabulary([98, 97]).encode("aX").tolist() == [1, 0]


def test_words():
    vocabulary = WordVocabulary(WORDS)
    assert vocabulary.encode("the cat \n the dog").tolist() == [1, 3, 0, 1, 2]
    assert vocabulary.decode([1, 3, 0, 1, 2]) == "the cat\nthe <unk>"
    assert vocabulary.start_token == 0
    assert WordVocabulary(WORDS, lower_case=True).encode("THE Naïve").tolist() == [1, 6]


def test_sentences_have_marks_at_both_ends():
    vocabulary = VOCABULARIES["sentences"]()
    assert vocabulary.encode("cat sat\non").tolist() == [3, 4, 0, 0, 5]
    assert vocabulary.decode([3, 4, 0, 0, 5]) == "cat sat\non"


@pytest.mark.parametrize(
    ("words", "match"), [(["a", "<unk>"], "no <eos>"), (["<eos>", "<unk>", "a", "a"], "has 'a' twice")]
)
def test_word_lists_that_will_not_do(words, match):
    with pytest.raises((InputError, ValueError), match=match):
        WordVocabulary(words)


def test_files_that_will_not_do(tmp_path):
    with pytest.raises(InputError, match=r"vocab.txt cannot be read"):
        load_vocabulary(str(tmp_path), WordVocabulary(WORDS).spec)
    (tmp_path / "vocab.txt").write_text("ninety\n")
    with pytest.raises(InputError, match="the vocabulary cannot be read"):
        load_vocabulary(str(tmp_path), {"kind": "bytes", "file": "vocab.txt", "dropped": []})
    for numbers in ("7\n7\n", "256\n", "-1\n", "1" + 30 * "0" + "\n", "7\n10\n"):
        (tmp_path / "vocab.txt").write_text(numbers)
        with pytest.raises(InputError, match="must have numbers from 0 to 255, each once"):
            load_vocabulary(str(tmp_path), {"kind": "bytes", "file": "vocab.txt", "dropped": [10]})
    with pytest.raises(InputError, match="of unknown kind 'pickle'"):
        load_vocabulary(str(tmp_path), {"kind": "pickle"})
    with pytest.raises(InputError, match="not a SentencePiece model"):
        SubwordVocabulary(b"nonsense")


def test_training_subwords():
    vocabulary = VOCABULARIES["subwords"]()
    assert vocabulary.vocab_size == 287
    pieces = [vocabulary.decode_bytes([token]) for token in vocabulary.encode("the the cats")]
    assert pieces == [b"t", b"he", b" the", b" cat", b"s"]
    assert vocabulary.decode_bytes([vocabulary.start_token]) == b"\n"
    assert subword_model() == subword_model()
    with pytest.raises(InputError, match="--vocab_size=258 is too small: 268 special pieces"):
        train({"ab": 1}, 258)
    with pytest.raises(InputError, match="--vocab_size=500 is too large for this text: 271 is the most"):
        train({"ab": 1}, 500)
    with pytest.raises(InputError, match="no words"):
        train({"\n": 1}, 300)


def test_trained_subwords_have_special_pieces_that_text_cannot_name():
    vocabulary = VOCABULARIES["subwords"]()
    assert vocabulary.special == SpecialTokens(unknown=0, cls=3, sep=4, pad=5, mask=6, end_of_document=7)
    names = ["<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", '"<eop>"']
    assert [vocabulary.describe(token) for token in range(1, 9)] == names
    text = "<sep> the <cls><unk> <s>"
    ids = vocabulary.encode(text)
    assert not set(ids.tolist()) & set(range(9))
    assert vocabulary.decode(ids) == text
    assert vocabulary.decode([3, *ids, 4, 7]) == text
    assert vocabulary.encode("<eop>").tolist() == [8]


def test_words_spelled_like_special_pieces_are_one_piece():
    """Corpora with rare words replaced are full of the word "<unk>"."""
    vocabulary = SubwordVocabulary(train({"the": 50, "<unk>": 30, "cat": 20}, 280).model)
    ids = vocabulary.encode("the <unk> cat")
    assert [vocabulary.decode_bytes([token]) for token in ids].count(b" <unk>") == 1
    assert 0 not in ids
    assert vocabulary.decode(ids) == "the <unk> cat"


def test_special_tokens_are_asked_for(tmp_path):
    words = WordVocabulary(WORDS)
    assert words.special == SpecialTokens(unknown=2)
    assert words.special_token("unknown") == 2
    words.save(str(tmp_path))
    with pytest.raises(InputError, match="this vocabulary of words has no separator token: prepare the data with"):
        words.special_token("sep")
    with pytest.raises(InputError, match=f"the vocabulary of {tmp_path} has no end-of-document token") as error:
        load_vocabulary(str(tmp_path), words.spec).special_token("end_of_document")
    assert "\n" not in str(error.value)
    assert ByteVocabulary().special == CharVocabulary("ab").special == SpecialTokens()
    assert VOCABULARIES["subwords"]().special_token("mask") == 6


def test_each_kind_has_a_name_of_its_own():
    assert tuple(KINDS) == ("bytes", "chars", "sentencepiece", "words", "xlnet")
    assert WordVocabulary.kind == "words"


@pytest.mark.parametrize(
    ("spec", "lines"),
    [
        ({"kind": "bytes"}, None),
        ({"kind": "bytes", "file": "vocab.txt", "dropped": [10]}, ["97", "63"]),
        ({"kind": "chars", "file": "vocab.txt"}, ['"a"', '" "']),
        (
            {
                "kind": "words",
                "file": "vocab.txt",
                "line_end": "<eos>",
                "both_ends": False,
                "unknown": "<unk>",
                "lower_case": False,
            },
            WORDS,
        ),
    ],
)
def test_specs_on_disk_stay_readable(tmp_path, spec, lines):
    """These are in the manifest.json of every prepared corpus and the corpus.json of every model_dir."""
    if lines:
        (tmp_path / "vocab.txt").write_text("".join(line + "\n" for line in lines))
    vocabulary = load_vocabulary(str(tmp_path), spec)
    assert vocabulary.spec == spec
    assert vocabulary.vocab_size == len(lines or range(256))


def test_a_paragraph_without_spaces_counts_for_a_subword_vocabulary():
    """As Chinese text is: the trainer drops a line of more than 4,192 bytes, here all of the text."""
    draw = np.random.default_rng(0)
    signs = [chr(0x4E00 + i) for i in range(40)]
    sentences = ["".join(draw.choice(signs, 20)) for _ in range(10)]
    paragraph = "".join(draw.choice(sentences, 200)) + "\u3002" + "".join(draw.choice(signs, 5000))
    vocabulary = SubwordVocabulary(train({paragraph: 1, "\n": 1}, vocab_size=400).model)
    ids = vocabulary.encode(paragraph)
    assert vocabulary.decode(ids) == paragraph
    assert len(ids) < len(paragraph)  # characters, not their three bytes each, and merges of them


@pytest.mark.parametrize(
    ("spec", "content", "message"),
    [
        ({"kind": "bytes", "dropped": [10]}, "7\n8\nninety\n", r"/vocab, line 3 has 'ninety'"),
        ({"kind": "bytes", "dropped": [10]}, "7\n8\n7\n", r"/vocab, line 3 has '7'"),
        ({"kind": "chars"}, '"a"\n"bc"\n', r"/vocab, line 2: this is not a list of characters"),
        ({"kind": "words"}, "<eos>\n", r"/vocab: the word list has no <unk>"),
        ({"kind": "sentencepiece"}, "nonsense", r"/vocab: not a SentencePiece model: give one"),
    ],
)
def test_a_wrong_file_is_named(spec, content, message, tmp_path):
    (tmp_path / "vocab").write_text(content)
    with pytest.raises(InputError, match=message):
        load_vocabulary(str(tmp_path), {**spec, "file": "vocab"})
