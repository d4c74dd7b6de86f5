"""XLNet's segments: token by token the published rule, from any step on, for any hosts and replicas."""

import functools
import itertools
import os

import numpy as np
import pair_corpus
import pytest
import tensorflow as tf
import xlnet_rules
import xlnet_tokens

from txl_tf.data.prepare import prepare
from txl_tf.data.vocabularies import SubwordVocabulary, WordVocabulary, XLNetVocabulary
from txl_tf.data.xlnet import pairs
from txl_tf.data.xlnet.pairs import sentence_ends, word_starts
from txl_tf.data.xlnet.spans import permutation_ranks, sample_spans
from txl_tf.errors import InputError
from txl_tf.hashing import numbered_seeds, random_bits, split_seed
from txl_tf.models.xlnet.config import XLNetConfig, XLNetEvalConfig, XLNetRunConfig
from txl_tf.settings.pretraining import CONTEXT, FUNCTIONAL, TARGET, PairsConfig, PermutationLMConfig

R, T, STEPS_OF_BLOCK = 24, 64, 5
W = T - R - 3
RULE = PermutationLMConfig(num_predict=11, perm_size=R)
SEED = (7, 1)
CONFIG = XLNetRunConfig(
    XLNetConfig(reuse_len=R), PairsConfig(6, T), eval=XLNetEvalConfig(batch_size=6, seed=SEED[0]), objective=RULE
)


@pytest.fixture(autouse=True, scope="module")
def short_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "_BLOCK_TOKENS", STEPS_OF_BLOCK * R)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return pair_corpus.write(str(tmp_path_factory.mktemp("pairs")), passes=2)


@pytest.fixture(scope="module")
def course(made):
    """The batches of six lanes from step 0 on: an epoch, and a part of the next."""
    lanes = make_lanes(made[0])
    return take(lanes.batches(0), lanes.epoch_steps + 12)


@pytest.fixture(scope="module")
def of_one_host(made):
    """Nine batches of twelve lanes from step 3 on, for one host with one replica."""
    return take(make_lanes(made[0], 12).batches(3), 9)


def make_lanes(corpus, batch_size=6, bi_data=True, **changes):
    settings = {"reuse_len": R, "rule": RULE, "seed": SEED} | changes
    return pairs.SplitPairs(corpus, "train", PairsConfig(batch_size, T, bi_data), **settings)


def take(dataset, number):
    return [pairs.PermutationBatch(*(part.numpy() for part in batch)) for batch in itertools.islice(dataset, number)]


def assert_same(batches, others):
    assert len(batches) == len(others) > 0
    for batch, other in zip(batches, others, strict=True):
        for part, same in zip(batch, other, strict=True):
            np.testing.assert_array_equal(part, same)


@functools.partial(tf.function, autograph=False)
def drawn_spans(starts, goal, seed):
    return sample_spans(starts, goal, RULE, seed)


@functools.partial(tf.function, autograph=False)
def drawn_ranks(t_len, seed):
    return permutation_ranks(t_len, R, seed)


@functools.partial(tf.function, autograph=False)
def drawn_seeds(block, step, lane):
    """Bits of the block, bits of the pair, and the seeds of the parts."""
    block_seed = numbered_seeds(numbered_seeds(tf.constant([SEED[0], ~SEED[1]]), block), lane)
    seed = numbered_seeds(numbered_seeds(tf.constant(SEED), step), lane)[None]
    pair_seed, *part_seeds = split_seed(seed, 5)
    return random_bits([1], block_seed), random_bits([1, 3], pair_seed)[0], part_seeds


class Rule:
    """A lane's segments by the rule, given the draws of their seeds."""

    def __init__(self, corpus, arrays, batch_size, bi_data):
        vocabulary = corpus.vocabulary
        self.marks = vocabulary.special.sep, vocabulary.special.cls
        self.ends, self.starts = sentence_ends(vocabulary), word_starts(vocabulary)
        self.stretches = batch_size // 2 if bi_data else batch_size
        self.n = len(arrays[0]) // self.stretches
        self.steps = (self.n - W) // R
        self.blocks = -(-self.steps // STEPS_OF_BLOCK)
        self.arrays = arrays

    def __call__(self, step, lane):
        """(tokens, segments, rank, kind, whether the text runs backward, whether B follows A)."""
        epoch, place = divmod(step, self.steps)
        stretch = lane % self.stretches
        text = self.arrays[epoch % len(self.arrays)][stretch * self.n : (stretch + 1) * self.n]
        ends = self.ends[text]
        sentences = np.cumsum(np.pad(ends[:-1] & ~ends[1:], [1, 0]))
        backward = lane >= self.stretches
        if backward:
            text, sentences = text[::-1], sentences[::-1]
        block = epoch * self.blocks + place // STEPS_OF_BLOCK
        (place_bits,), bits, part_seeds = drawn_seeds(*(tf.constant(number) for number in (block, step, lane)))
        core = STEPS_OF_BLOCK * R
        elsewhere = int(place_bits) * (self.n - core + 1) >> 32
        bits = [int(value) for value in bits]
        begin = place * R + R
        _, (a_end, b_begin, b_end), follows = xlnet_rules.split_pair(
            sentences,
            begin,
            W,
            bits[1] >= 1 << 31,
            lambda cuts: cuts[bits[0] * len(cuts) >> 32],
            lambda least: elsewhere + (bits[2] * (core - least + 1) >> 32),
            limit=W,
        )
        sep, cls = self.marks
        a, b = text[begin:a_end], text[b_begin:b_end]
        tokens = np.concatenate([text[begin - R : begin], a, [sep], b, [sep, cls]])
        segments = [0] * (R + len(a) + 1) + [1] * (len(b) + 1) + [2]
        kind = np.full(T, CONTEXT)
        for part, goal, span_seed in ((slice(R), 6, part_seeds[2]), (slice(R, T), 5, part_seeds[3])):
            turn = slice(None, None, -1) if backward else slice(None)
            starts = self.starts[tokens[part]][turn]
            drawn = drawn_spans(tf.constant(starts[None]), goal, span_seed).numpy()[0]
            kind[part][drawn[turn]] = TARGET
        kind[[R + len(a), T - 2, T - 1]] = FUNCTIONAL
        ranks = [drawn_ranks(n, s).numpy()[0] for n, s in ((R, part_seeds[0]), (T - R, part_seeds[1]))]
        return tokens, segments, np.concatenate(ranks), kind, backward, follows


@pytest.mark.parametrize(("batch_size", "bi_data"), [(6, True), (2, False)])
def test_segments_are_those_of_the_rule_token_by_token(made, course, batch_size, bi_data):
    corpus, arrays = made
    lanes, rule = make_lanes(corpus, batch_size, bi_data), Rule(corpus, arrays["train"], batch_size, bi_data)
    assert lanes.epoch_steps == rule.steps and lanes.epoch_steps % STEPS_OF_BLOCK  # an epoch ends within a block
    follow = []
    first = lanes.epoch_steps - 6  # two passes, and blocks, meet
    batches = course[first:][:14] if batch_size == 6 else take(lanes.batches(first), 14)
    assert len(batches) == 14
    for step, batch in enumerate(batches, start=first):
        for lane in range(batch_size):
            *parts, follows = rule(step, lane)
            for part, own in zip(batch, parts, strict=True):
                np.testing.assert_array_equal(part[lane], own)
            follow.append(follows)
    assert 0.2 < np.mean(follow) < 0.8
    assert batch.backward.tolist() == [lane >= batch_size // 2 and bi_data for lane in range(batch_size)]


def test_a_step_advances_so_far_that_the_memory_is_followed(made, course):
    """The first R tokens of a step follow those of the step before; backward lanes read the same text from its end."""
    corpus, arrays = made
    lanes = make_lanes(corpus)
    text = np.concatenate([batch.tokens[:, :R] for batch in course[: lanes.epoch_steps]], axis=1)
    stretches = arrays["train"][0][: 3 * (len(arrays["train"][0]) // 3)].reshape(3, -1)
    np.testing.assert_array_equal(text[:3], stretches[:, : text.shape[1]])
    np.testing.assert_array_equal(text[3:], stretches[:, ::-1][:, : text.shape[1]])
    assert lanes.unused == 5003 - 3 * text.shape[1] and lanes.step_tokens == 6 * T
    assert lanes.reads == round(2 * T / R)


@pytest.mark.slow
def test_any_step_is_found_by_arithmetic(made, course):
    corpus, _ = made
    lanes = make_lanes(corpus)
    for step in (3, 5, lanes.epoch_steps - 1, lanes.epoch_steps, lanes.epoch_steps + 7):
        assert_same(take(lanes.batches(step), 4), course[step : step + 4])
    assert not np.array_equal(take(make_lanes(corpus, seed=(8, 1)).batches(0), 1)[0].kind, course[0].kind)


@pytest.mark.parametrize(("hosts", "replicas"), [(1, 2), (2, 3), pytest.param(3, 1, marks=pytest.mark.slow)])
def test_hosts_and_replicas_side_by_side_are_one_batch(made, of_one_host, hosts, replicas):
    corpus, _ = made
    lanes, layout = make_lanes(corpus, 12), {"num_hosts": hosts, "replicas_per_host": replicas}
    per_host = [take(lanes.batches(3, host=host, **layout), 9 * replicas) for host in range(hosts)]
    together = []
    for step in range(9):
        rows = [batch for host in per_host for batch in host[step * replicas : (step + 1) * replicas]]
        together.append(pairs.PermutationBatch(*(np.concatenate(parts) for parts in zip(*rows, strict=True))))
    assert_same(together, of_one_host)


def test_evaluation_is_one_pass_and_always_the_same(made):
    corpus, _ = made
    data = pairs.EvaluationPairs(corpus, "train", CONFIG)
    batches = take(data.batches(), 1000)
    assert len(batches) == data.steps == make_lanes(corpus).epoch_steps
    assert_same(batches, take(data.batches(), 1000))
    assert len(take(data.batches(replicas_per_host=2), 1000)) == 2 * data.steps


def test_the_published_numbers(tmp_path):
    """T 512, R 256, P 85: 43 + 42 tokens are drawn; SEP and CLS are the only ones that are not predicted."""
    corpus, _ = pair_corpus.write(str(tmp_path), 40_000)
    rule = PermutationLMConfig()
    lanes = pairs.SplitPairs(corpus, "train", PairsConfig(8, 512), 256, rule, SEED)
    counts = []
    for batch in take(lanes.batches(0), 20):
        targets = batch.kind == TARGET
        np.testing.assert_array_equal(targets[:, :256].sum(axis=1), 43)
        counts += targets[:, 256:].sum(axis=1).tolist()
        np.testing.assert_array_equal(np.sort(batch.rank[:, :256]), np.arange(256) + np.zeros([8, 1]))
        np.testing.assert_array_equal(np.sort(batch.rank[:, 256:]), np.arange(256) + np.zeros([8, 1]))
        assert (batch.rank[:, :256] != batch.rank[:, 256:]).any()
        functional = batch.kind == FUNCTIONAL
        special = corpus.vocabulary.special
        np.testing.assert_array_equal(functional, np.isin(batch.tokens, [special.sep, special.cls]))
        assert (functional.sum(axis=1) == 3).all() and (batch.tokens[:, -2:] == [special.sep, special.cls]).all()
        lengths = [np.bincount(row[256:], minlength=3) for row in batch.segments]  # with a SEP each, and CLS
        assert all(a + b == 255 and a > 1 and b > 1 and cls == 1 for a, b, cls in lengths)
        assert (batch.segments[:, :256] == 0).all() and (np.diff(batch.segments) >= 0).all()
    assert set(counts) <= {39, 40, 41, 42} and np.mean(np.array(counts) == 42) > 0.4


def draw(rows, sentence, total=253, core=8192, seed=1):
    """`draw_pairs` of texts whose sentences all have `sentence` tokens."""
    starts = np.zeros([rows, 2 * total], bool)
    starts[:, ::sentence] = True
    elsewhere = np.arange(total + core + total) % sentence == 0
    seeds = numbered_seeds(tf.constant([seed, 0]), tf.range(rows))
    found = pairs.draw_pairs(tf.constant(starts), tf.constant(elsewhere), core, total, seeds)
    return pairs.Pairs(*(part.numpy() for part in found))


def test_half_of_the_pairs_follow_one_another():
    found = draw(20_000, 20)
    assert found.follows.mean() == pytest.approx(0.5, abs=0.012)
    assert (found.first_len + found.second_len == 253).all() and (found.first_len >= 1).all()
    np.testing.assert_array_equal(found.second[found.follows] % 20, 0)  # both begin with a sentence
    np.testing.assert_array_equal(found.second[~found.follows] % 20, 0)
    cuts = np.bincount(found.second[found.follows] // 20, minlength=13)[1:]
    assert len(cuts) == 12 and cuts.min() > 0.85 * cuts.mean()  # 20, 40, .., 240: all equally likely
    # The longer one is cut: A to 127 at least, where B leaves it no more.
    assert found.first_len.max() == 253 - 20 and 127 in found.first_len
    places = np.histogram(found.second[~found.follows], 8, (253, 253 + 8192))[0]
    assert places.min() > 0.85 * places.mean()  # from everywhere


def test_text_without_ends_of_sentences_is_never_followed():
    found = draw(300, 10_000)
    assert not found.follows.any()
    assert (found.first_len == 127).all()  # both are longer than they can be
    assert (draw(300, 252).first_len <= 127).all()


def test_words_and_sentences():
    vocabulary = SubwordVocabulary(pair_corpus.small_model())
    starts, ends = word_starts(vocabulary), sentence_ends(vocabulary)
    named = {name: bool(starts[i]) for i, name in enumerate(vocabulary.pieces)}
    assert named["\u2581"] and named["<sep>"] and named["<0x0A>"] and named["\u2581import"]
    assert not any(named.get(name, False) for name in ("a", "im", "'", "e"))
    assert {vocabulary.pieces[i] for i in np.flatnonzero(ends)} == {"<0x0A>", "<eod>", "<eop>"}

    published = XLNetVocabulary(xlnet_tokens.small_model())
    starts, ends = word_starts(published), sentence_ends(published)
    assert {published.pieces[i] for i in np.flatnonzero(ends)} >= {"<eod>", "<eop>", "."}
    assert starts[list(published.pieces).index("(")] and not ends[list(published.pieces).index("(")]

    words = WordVocabulary(["<eos>", "<unk>", "a", "b"])
    assert word_starts(words).all() and sentence_ends(words).tolist() == [True, False, False, False]


def test_what_cannot_be_read_is_one_line(made, corpus):
    with pytest.raises(InputError, match="has no separator token: prepare the data with --vocab=sentencepiece"):
        make_lanes(corpus)
    own, _ = made
    with pytest.raises(InputError, match=r"stretches of at least 61 tokens need 6,100, but train has 5,003: lower"):
        make_lanes(own, 200)
    with pytest.raises(InputError, match="batch_size 6 is not a multiple of the 4 replicas"):
        make_lanes(own).batches(0, replicas_per_host=4)
    with pytest.raises(InputError, match="batch_size=5 is odd, and with bi_data half of the lanes read backward"):
        PairsConfig(5)


def test_a_host_reads_only_its_own_stretches(tmp_path):
    corpus, _ = pair_corpus.write(str(tmp_path), passes=2)
    expected = take(make_lanes(corpus, 4, bi_data=False).batches(0), 8)
    for shard in corpus.splits["train"].passes[0][:7]:  # of 15: the first lanes' tokens
        os.remove(corpus.path(shard.file))
    second = take(make_lanes(corpus, 4, bi_data=False).batches(0, host=1, num_hosts=2), 8)
    for batch, whole in zip(second, expected, strict=True):
        np.testing.assert_array_equal(batch.tokens, whole.tokens[2:])


def test_a_prepared_corpus_has_what_it_takes(tmp_path):
    (tmp_path / "text").mkdir()
    for i in range(30):
        (tmp_path / "text" / f"{i}.txt").write_text("def one(two):\n    return two + 1\n" * 30)
    corpus = prepare(
        "text", str(tmp_path / "data"), source=str(tmp_path / "text"), vocab="sentencepiece", vocab_size=290
    )
    (batch,) = take(make_lanes(corpus, 4).batches(0), 1)
    text = corpus.vocabulary.decode(batch.tokens[0, :R])
    assert text in "def one(two):\n    return two + 1\n" * 30
