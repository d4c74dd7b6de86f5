"""Legal sequences of tags: the rules of each scheme, and the likeliest sequence beside all sequences, enumerated."""

import itertools
import re

import numpy as np
import pytest

from txl_tf.tasks.tagging.decoding import likeliest_legal
from txl_tf.tasks.tagging.schemes import IO, OLDER, PLAIN, allowed, scheme_of

IOB2 = ("B-A", "B-B", "I-A", "I-B", "O")
IOBES = ("B-A", "E-A", "I-A", "O", "S-A", "S-B")
ENTITY = {
    "BIO": ["B_(I_)*"],
    "BIOES": ["B_(I_)*E_", "S_"],
    "BILOU": ["B_(I_)*L_", "U_"],
    "BMEWO": ["B_(M_)*E_", "W_"],
}
"""The entities of each scheme as regular expressions, with _ for a hyphen and the kind."""


def is_legal(tags, form):
    """Whether the tags of a text are O and whole entities alone."""
    kinds = {tag[2:] for tag in tags if tag != "O"}
    whole = [re.sub("([A-Z])_", rf"\1-{kind} ", entity) for entity in ENTITY[form] for kind in kinds]
    return re.fullmatch(f"({'|'.join([*whole, 'O '])})*", "".join(f"{tag} " for tag in tags)) is not None


def of_scheme(letters):
    return tuple(sorted(["O", *(f"{letter}-{kind}" for letter in letters for kind in "AB")]))


@pytest.mark.parametrize(("form", "letters"), [("BIO", "BI"), ("BIOES", "BIES"), ("BILOU", "BILU"), ("BMEWO", "BMEW")])
def test_the_rules_are_those_of_the_scheme(form, letters):
    """For all sequences of up to three tags."""
    labels = of_scheme(letters)
    rules = allowed(labels, scheme_of(labels))
    for length in (1, 2, 3):
        for tags in itertools.product(range(len(labels)), repeat=length):
            whole = [len(labels), *tags, len(labels)]
            found = all(rules[one, then] for one, then in itertools.pairwise(whole))
            assert found == is_legal([labels[tag] for tag in tags], form), [labels[tag] for tag in tags]


@pytest.mark.parametrize(
    ("labels", "scheme"), [(("NOUN", "VERB", "O"), PLAIN), (("LOC", "O"), IO), (("B_A", "I_A", "O"), OLDER)]
)
def test_schemes_without_rules_allow_everything(labels, scheme):
    assert allowed(labels, scheme).all()


def test_a_kind_without_a_tag_for_its_beginning_or_end_can_still_be_found():
    labels = ("B-A", "E-A", "I-B", "O")
    rules = allowed(labels, scheme_of(labels))
    assert rules[3, 2] and rules[2, 3] and rules[2, 2]  # O I-B, I-B O, I-B I-B
    assert not rules[0, 2] and not rules[0, 3] and rules[0, 1]  # only E-A ends B-A


@pytest.mark.parametrize("labels", [IOB2, IOBES])
def test_the_likeliest_of_all_legal_sequences(labels, rng):
    """Texts of 0 to 4 words in one batch; what stands beyond their ends says nothing."""
    rules = allowed(labels, scheme_of(labels))
    lengths = np.array([0, 1, 2, 3, 4, 4])
    log_probs = rng.normal(size=[len(lengths), 5, len(labels)], scale=3).astype(np.float32)
    log_probs -= np.log(np.exp(log_probs).sum(axis=2, keepdims=True))
    found = likeliest_legal(log_probs, lengths, rules).numpy()
    assert found.shape == (len(lengths), 5)
    form = "BIOES" if "S-A" in labels else "BIO"
    changed = 0
    for row, tags, length in zip(log_probs, found, lengths, strict=True):
        sums = {
            one: sum(row[i, tag] for i, tag in enumerate(one))
            for one in itertools.product(range(len(labels)), repeat=int(length))
            if is_legal([labels[tag] for tag in one], form)
        }
        assert tuple(tags[:length].tolist()) == max(sums, key=sums.__getitem__)
        changed += (row[:length].argmax(axis=1) != tags[:length]).any()
    assert changed  # taken by themselves some would be another tag
    longer = np.concatenate([log_probs, rng.normal(size=[len(lengths), 3, len(labels)])], axis=1).astype(np.float32)
    np.testing.assert_array_equal(likeliest_legal(longer, lengths, rules)[:, :4], found[:, :4])


def test_long_texts_stay_legal(rng):
    labels, lengths = of_scheme("BIES"), (300, 299)
    log_probs = rng.normal(size=[2, 300, len(labels)], scale=5).astype(np.float32)
    found = likeliest_legal(log_probs, lengths, allowed(labels, scheme_of(labels))).numpy()
    for row, length in zip(found, lengths, strict=True):
        tags = [labels[tag] for tag in row[:length]]
        assert is_legal(tags, "BIOES") and len(set(tags)) > 4


def test_where_nothing_is_legal_a_text_still_gets_tags():
    labels = ("B-A", "E-A")
    found = likeliest_legal(np.zeros([1, 1, 2], np.float32), [1], allowed(labels, scheme_of(labels))).numpy()
    assert found.shape == (1, 1) and found[0, 0] in (0, 1)
