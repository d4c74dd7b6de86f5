"""XLNet's tokens against the official rules, on lines and a model made here."""

import functools
import json
import sys
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from xlnet_tokens import Rules, clean, generated_lines, small_model

from txl_tf.data.prepare import prepare
from txl_tf.data.vocabularies import SubwordVocabulary, XLNetVocabulary, load_vocabulary
from txl_tf.data.vocabularies.base import SpecialTokens
from txl_tf.data.vocabularies.subword_training import train
from txl_tf.data.vocabularies.xlnet import CleanUp, combining_marks, lower_case
from txl_tf.errors import InputError

OPTIONS = [
    {},
    {"lower_case": True},
    {"keep_accents": True},
    {"remove_space": False},
    {"lower_case": True, "keep_accents": True, "remove_space": False},
]


@functools.cache
def model():
    return small_model()


@functools.cache
def vocabulary():
    return XLNetVocabulary(model())


@pytest.mark.parametrize("options", OPTIONS)
def test_ids_are_those_of_the_official_rules(options):
    lines = [*generated_lines(400), "", "  ", "a\0b İx"]
    rules, own = Rules(model(), **options), XLNetVocabulary(model(), **options)
    expected = [rules.encode(line) for line in lines]
    made = [own.encode(line).tolist() for line in lines]
    ragged = tf.function(own.encode_tensor)(tf.constant(lines))
    assert ragged.dtype == tf.int32
    assert ragged.to_list() == made
    # Two versions of SentencePiece may round differently where two cuttings are equally good.
    differing = [pair for pair in zip(made, expected, strict=True) if pair[0] != pair[1]]
    assert all(rules.is_tie(*pair) for pair in differing)
    assert len(differing) <= 4


def test_lines_are_encoded_one_by_one():
    lines = ["the River\r", "", " 1,000, ", "``so''"]
    rules, text = Rules(model()), "\n".join(lines)
    expected = [token for line in lines for token in rules.encode(line)]
    assert vocabulary().encode(text).tolist() == expected
    assert vocabulary().encode(text.encode()).tolist() == expected
    assert vocabulary().encode_tensor(tf.constant([text, "", "\n"])).to_list() == [expected, [], []]
    assert rules.encode(text) == expected


def test_pieces_that_end_in_a_digit_and_a_comma_are_taken_apart():
    rules, own = Rules(model()), vocabulary()
    names = [rules.processor.id_to_piece(token) for token in range(own.vocab_size)]
    affected = {token for token, name in enumerate(names) if name[-1] == "," and name[-2:-1].isdigit()}
    assert {names[token][0] == "\u2581" for token in affected} == {True, False}  # at starts of words and inside
    lines = generated_lines(400)
    raw = SubwordVocabulary(model())
    seen = affected & {token for line in lines for token in raw.encode(clean(line)).tolist()}
    assert len(seen) > 10
    comma = rules.processor.piece_to_id(",")
    for token in seen:
        text = names[token].replace("\u2581", " ")
        assert own.encode(text)[-1] == comma


def test_the_clean_up_drops_exactly_what_has_a_combining_class():
    codes = [code for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    letters = tf.strings.unicode_encode(tf.constant(codes)[:, None], "UTF-8")
    dropped = tf.strings.regex_replace(letters, combining_marks(), "").numpy() == b""
    assert dropped.tolist() == [unicodedata.combining(chr(code)) != 0 for code in codes]


def test_the_clean_up_of_every_assigned_character_is_that_of_python():
    codes = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
    cleaned = CleanUp()(tf.strings.unicode_encode(tf.constant(codes)[:, None], "UTF-8")).numpy()
    wrong = [hex(code) for code, text in zip(codes, cleaned, strict=True) if text.decode() != clean(chr(code))]
    assert not wrong


def test_lower_case_keeps_what_follows_a_zero_byte():
    assert lower_case(tf.constant(["A\0B", "ÀΣ ΑΣ"])).numpy().tolist() == [b"a\0b", "ÀΣ ΑΣ".lower().encode()]


def test_special_tokens_and_control_pieces():
    own = vocabulary()
    assert own.special == SpecialTokens(unknown=0, cls=3, sep=4, pad=5, mask=6, end_of_document=7)
    assert own.start_token == 7
    assert 4 not in own.encode("<sep>")
    assert 8 in own.encode("<eop>")
    with pytest.raises(InputError, match=r"it has no <mask>, <eod>; give XLNet's spiece\.model"):
        XLNetVocabulary(model().replace(b"<mask>", b"<mosk>").replace(b"<eod>", b"<e0d>"))


def test_decoding_joins_pieces():
    own, text = vocabulary(), "the River (one)"
    ids = own.encode(f"  {text} ")
    assert own.decode(ids) == text
    assert own.decode([3, *ids, 4]) == text
    assert own.decode_bytes(ids[:2]) + own.decode_bytes(ids[2:]) == own.decode_bytes(ids) == f" {text}".encode()
    padded = tf.ragged.constant([ids.tolist(), []], dtype=tf.int32)
    assert tf.function(own.decode_tensor)(padded).numpy().tolist() == [text.encode(), b""]


@pytest.mark.parametrize("options", OPTIONS)
def test_on_disk_and_in_a_saved_model(options, tmp_path):
    own = XLNetVocabulary(model(), **options)
    own.save(str(tmp_path))
    again = load_vocabulary(str(tmp_path), json.loads(json.dumps(own.spec)))
    assert again.spec == own.spec
    assert {name: again.spec[name] for name in options} == options
    lines = generated_lines(30, seed=2)
    expected = [own.encode(line).tolist() for line in lines]
    assert [again.encode(line).tolist() for line in lines] == expected

    served = tf.Module()
    served.vocabulary = again
    served.encode = tf.function(
        lambda texts: again.encode_tensor(texts).to_tensor(-1), input_signature=[tf.TensorSpec([None], tf.string)]
    )
    tf.saved_model.save(served, str(tmp_path / "saved"))
    ids = tf.saved_model.load(str(tmp_path / "saved")).encode(tf.constant(lines)).numpy()
    assert [row[row >= 0].tolist() for row in ids] == expected


def test_a_corpus_has_its_documents_marked(tmp_path):
    (tmp_path / "spiece.model").write_bytes(model())
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("the River\n1,000, naïve\n\nthe fine\n")
    corpus = prepare(
        "text",
        str(tmp_path / "corpus"),
        source=str(tmp_path / "*.txt"),
        vocab="xlnet",
        vocab_file=str(tmp_path / "spiece.model"),
    )
    own = corpus.vocabulary
    parts = [own.encode("the River\n1,000, naïve"), [7], own.encode("the fine"), [7]]
    assert corpus.splits["train"].tokens == sum(map(len, parts))
    documents = ["the River\n1,000, naïve\n \n".encode(), b"the fine\n\n", b""]
    assert own.encode_documents(documents).tolist() == np.concatenate(parts).tolist()
    assert own.encode_documents([b""]).tolist() == []
    with pytest.raises(InputError, match=r"--vocab=xlnet needs --vocab_file: the spiece\.model"):
        prepare("text", str(tmp_path / "other"), source=str(tmp_path / "*.txt"), vocab="xlnet")


def test_a_trained_model_serves_as_xlnets():
    own = XLNetVocabulary(train({"the": 50, "cat": 20}, 280).model)
    assert own.special_token("sep") == 4
    assert own.decode(own.encode("the  cat")) == "the cat"
