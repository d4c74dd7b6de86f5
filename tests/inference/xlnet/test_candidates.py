"""Given words scored in a blank: each piece by tests/references/reference_xlnet.py, and as a search finds them."""

import json

import numpy as np
import processes
import pytest
import reference_xlnet as reference
from processes import ROOT
from random_xlnet import random_xlnet, with_prefix, write_model_dir
from xlnet_models import weights_of

from txl_tf.data.vocabularies import ByteVocabulary, WordVocabulary
from txl_tf.errors import InputError
from txl_tf.inference.xlnet.fill_in import FillIn

TEXT = "the ____ so a dash"


@pytest.fixture(scope="module")
def pieces():
    """A FillIn over a few pieces, of which words have one or several; a space begins a word."""
    vocabulary = with_prefix()
    return FillIn(random_xlnet(vocab_size=vocabulary.vocab_size, dtype="float64"), vocabulary, jit_compile=False)


def one_by_one(model, before, ids, after, backward=False):
    """log p of each of the ids in their gap by the reference: given the text, and those before it in the order."""
    weights, row = weights_of(model), np.concatenate([before, ids, after]).astype(int)
    places, found = len(before) + np.arange(len(ids)), {}
    for n, place in enumerate(places[::-1] if backward else places):
        later = (places[::-1] if backward else places)[n:]
        visible = np.ones([len(row), len(row)], bool)
        visible[:, later] = False
        streams = reference.xlnet(weights, row, visible=visible, targets=[place], activation=reference.gelu)
        found[place] = reference.log_probs(weights, streams.output[0])[row[place]]
    return [found[place] for place in places]


@pytest.mark.parametrize("order", ["left_to_right", "right_to_left"])
def test_every_piece_has_the_probability_of_the_reference(pieces, order):
    encode = pieces.vocabulary.encode
    before, after = encode("the"), encode("so a dash")
    found = pieces.fill(TEXT, candidates=["dash", "River", "so"], order=order)
    assert [filling.total for filling in found] == sorted((filling.total for filling in found), reverse=True)
    assert {filling.text for filling in found} == {f"the {word} so a dash" for word in ("dash", "River", "so")}
    lengths = set()
    for filling in found:
        assert filling.ids.tolist() == list(encode(filling.pieces[1]))
        expected = one_by_one(pieces.model, before, filling.ids, after, order == "right_to_left")
        np.testing.assert_allclose(filling.log_probs, expected, atol=1e-9)
        lengths.add(len(filling.ids))
    assert len(lengths) > 1, "words of one length show less"


def test_what_a_search_finds_has_the_same_numbers_as_a_candidate(pieces):
    for order in ("left_to_right", "right_to_left"):
        again, settings = 0, {"order": order, "context": "a dash"}
        found = pieces.fill(TEXT.replace("____", "____*2"), beam_size=40, **settings)
        scored = pieces.fill(TEXT, candidates=[filling.pieces[1] for filling in found], **settings)
        assert len(scored) == len(found)
        log_probs = {tuple(one.ids): one.log_probs for one in scored}
        for filling in found:
            if tuple(filling.ids) in log_probs:  # not where the vocabulary would cut this text otherwise
                np.testing.assert_allclose(log_probs[tuple(filling.ids)], filling.log_probs, atol=1e-9)
                again += 1
        assert again > 3


def test_words_beside_a_blank_without_spaces_and_bytes():
    letters = FillIn(random_xlnet(), ByteVocabulary(), jit_compile=False)
    found = letters.fill(["a(____)", "b____"], candidates=["bc", "\u00e9"])
    assert [filling.marked() for filling in sorted(found[0])] == ["a([bc])", "a([\u00e9])"]
    for fillings, before, after in zip(found, ([97, 40], [98]), ([41], []), strict=True):
        for filling in fillings:
            expected = one_by_one(letters.model, before, filling.ids, after)
            np.testing.assert_allclose(filling.log_probs, expected, atol=1e-4)


def test_what_cannot_be_scored_is_one_line(pieces):
    words = FillIn(random_xlnet(vocab_size=4), WordVocabulary(["<eos>", "<unk>", "a", "b"]), jit_compile=False)
    for fill_in, text, options, message in (
        (pieces, "____ and ____", {}, "for a text with one blank"),
        (pieces, "____*2", {}, "without a number after it: ____"),
        (pieces, TEXT, {"order": "confident"}, "order=confident: candidates are scored in the order left_to_right or"),
        (pieces, TEXT, {"candidates": ["a", " "]}, "the candidate ' ' is empty"),
        (pieces, TEXT, {"candidates": "a"}, "candidates='a' must be a list"),
        (words, "a ____", {"candidates": ["z"]}, "the candidate 'z' has tokens that the model does not know"),
        (pieces, "no gap", {}, "there is no blank"),
    ):
        with pytest.raises(InputError, match=message.replace("*", "[*]")):
            fill_in.fill(text, **{"candidates": ["a"]} | options)


def test_the_command_prints_all_candidates(tmp_path):
    write_model_dir(tmp_path, with_prefix())
    model = FillIn.load(str(tmp_path), jit_compile=False)
    words = ["River", "dash", "so", "a", "the", "River dash"]
    found = model.fill(TEXT, candidates=words)

    def run(*flags):
        return processes.run(["scripts/fill.py", f"--model_dir={tmp_path}", f"--text={TEXT}", *flags], cwd=ROOT)

    done = run(f"--candidates={','.join(words)}")
    assert done.stdout.splitlines() == [f"{filling.total:.4f}\t{filling.text}" for filling in found], done.stderr
    lines = [json.loads(line) for line in run("--candidates=dash,so", "--json").stdout.splitlines()]
    assert {line["fillings"][0]: pytest.approx(line["total"], abs=1e-4) for line in lines} == {
        filling.pieces[1]: filling.total for filling in found if filling.pieces[1] in ("dash", "so")
    }
    for flags in (["--top=1"], ["--score"], ["--free"]):
        done = run("--candidates=a", *flags)
        assert done.returncode == 1 and "cannot be used with --candidates" in done.stderr
        assert len(done.stderr.splitlines()) == 1
