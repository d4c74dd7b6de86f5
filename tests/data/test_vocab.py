import json

import numpy as np
import pytest
import tensorflow as tf

from txl_tf.data import subwords
from txl_tf.data.vocab import ByteVocabulary, CharVocabulary, WordVocabulary, load_vocabulary
from txl_tf.errors import InputError

TEXTS = ["the cat sat\non the mat\n", "", "the  cat\n\n", "naïve \u3000日本\u2028x\ttab", "\n"]
WORDS = ["<eos>", "the", "<unk>", "cat", "sat", "on", "naïve"]


def subword_model():
    counts = {"the": 50, "cat": 20, "sat": 20, "mat": 10, "naïve": 5, "\n": 9}
    return subwords.train(counts, 257 + 14 + 8)


VOCABULARIES = {
    "bytes": ByteVocabulary,
    "some bytes": lambda: ByteVocabulary([ord(c) for c in " tehcasonm?"], dropped=[10]),
    "chars": lambda: CharVocabulary(" etahcsonmïv\n"),
    "words": lambda: WordVocabulary(WORDS),
    "sentences": lambda: WordVocabulary(["<S>", "<UNK>", "the", *WORDS[3:]], "<S>", both_ends=True, unknown="<UNK>"),
    "lower case": lambda: WordVocabulary(WORDS, lower_case=True),
    "subwords": lambda: subwords.SubwordVocabulary(subword_model()),
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


@pytest.mark.parametrize(("words", "match"), [(["a", "<unk>"], "no <eos>"), (["<eos>", "<unk>", "a", "a"], "twice")])
def test_word_lists_that_will_not_do(words, match):
    with pytest.raises((InputError, ValueError), match=match):
        WordVocabulary(words)


def test_files_that_will_not_do(tmp_path):
    with pytest.raises(InputError, match=r"vocab.txt cannot be read"):
        load_vocabulary(str(tmp_path), WordVocabulary(WORDS).spec)
    (tmp_path / "vocab.txt").write_text("ninety\n")
    with pytest.raises(InputError, match="the vocabulary cannot be read"):
        load_vocabulary(str(tmp_path), {"kind": "bytes", "file": "vocab.txt", "dropped": []})
    with pytest.raises(InputError, match="of unknown kind 'pickle'"):
        load_vocabulary(str(tmp_path), {"kind": "pickle"})
    with pytest.raises(InputError, match="not a SentencePiece model"):
        subwords.SubwordVocabulary(b"nonsense")


def test_training_subwords():
    vocabulary = VOCABULARIES["subwords"]()
    assert vocabulary.vocab_size == 279
    pieces = [vocabulary.decode_bytes([token]) for token in vocabulary.encode("the the cats")]
    assert pieces == [b"the", b" the", b" cat", b"s"]
    assert vocabulary.decode_bytes([vocabulary.start_token]) == b"\n"
    assert subword_model() == subword_model()
    with pytest.raises(InputError, match="too small"):
        subwords.train({"ab": 1}, 258)
    with pytest.raises(InputError, match="too large for this text"):
        subwords.train({"ab": 1}, 500)
