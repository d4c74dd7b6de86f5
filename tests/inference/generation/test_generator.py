"""Generation and scoring against the model with mems, one token at a time."""

import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf
from random_model import CONFIG, random_model, read

from txl_tf.errors import InputError
from txl_tf.inference.causal.draw_token import Choice
from txl_tf.inference.generation.generator import CHUNK, Generator
from txl_tf.models.transformer_xl.config import Reach
from txl_tf.ops import platform

ON_CPU = platform.program().target == "cpu"

# Shorter and longer than a segment (64) and than the memory (24), and none at all.
PROMPTS = ["", "ab", "def f(x):\n    return x", "q" * 64, "wörter " * 20, "import os\n" * 15]


def reference_log_probs(lm, ids):
    """Log-probabilities [n, V] after each token, by the model with mems, fed token by token."""
    return read(lm.model, ids, [1] * len(ids))[0]


@pytest.mark.slow
def test_greedy_takes_the_most_likely_token_after_every_prefix(byte_model):
    ids = byte_model.vocabulary.encode(PROMPTS[4])[:100]
    lengths = np.arange(1, 101, dtype=np.int32)
    greedy = Choice.of(np.zeros(100, np.int32), temperature=0.0)
    found = byte_model.generator.generate(np.tile(ids, [100, 1]), lengths, 1, greedy)
    expected = reference_log_probs(byte_model, ids).argmax(-1)
    np.testing.assert_array_equal(found[:, 0], expected)
    assert len(set(expected)) > 3  # a model that says always the same would prove little


@pytest.mark.parametrize("settings", [{"temperature": 1.0}, {"temperature": 0.7, "top_k": 20, "top_p": 0.9}])
def test_a_batch_of_prompts_equals_the_single_prompts_and_the_stream(byte_model, settings):
    seeds = [11, 12, 13, 14, 15, 16]
    batch = byte_model.generate(PROMPTS, 70, seed=seeds, **settings)
    assert len(set(batch)) == len(batch)
    for prompt, seed, text in zip(PROMPTS, seeds, batch, strict=True):
        assert byte_model.generate(prompt, 70, seed=seed, **settings) == text
        assert "".join(byte_model.stream(prompt, 70, seed=seed, **settings)) == text


def test_a_processor_changes_log_probabilities_before_the_settings_do(plain_model):
    """One that changes nothing gives the same text; a token that it forbids is in none, even if it is the likeliest."""

    def written(processor, **settings):
        return plain_model.generator.generate([[120]], [1], 70, Choice.of([3], **settings), processor)[0].numpy()

    sampled, greedy = written(None, top_k=5), written(None, temperature=0.0)
    np.testing.assert_array_equal(written(lambda log_prob, _: log_prob, top_k=5), sampled)

    def without_first(log_prob, _):
        return tf.where(tf.range(log_prob.shape[1]) == greedy[0], -float("inf"), log_prob)

    for settings in ({"top_k": 1}, {"top_k": 5}, {"temperature": 0.0}):  # `top_k` counts what is left
        found = written(without_first, **settings)
        assert greedy[0] not in found and len(found) == 70
    for wrong, said in ((3, "logits_processor=3 must be a function"), (lambda p, _: p[:, :5], r"shape \(1, 5\)")):
        with pytest.raises(InputError, match=said):
            plain_model.generate("x", 5, logits_processor=wrong)


def test_a_processor_knows_the_whole_text(byte_model):
    """Always the byte after the largest of the text, beyond segments and chunks: in a batch, alone, in a stream."""

    def ascending(log_prob, texts):
        following = tf.reduce_max(texts, axis=1, keepdims=True) + 1
        return tf.where(tf.range(log_prob.shape[1]) == following, log_prob, -float("inf"))

    prompts, count = ["!", "(\x01" * 20, " ", "0" * 64, "0" * 65, "("], CHUNK + 6
    wanted = ["".join(chr(ord(max(prompt)) + i) for i in range(1, count + 1)) for prompt in prompts]
    assert byte_model.generate(prompts, count, logits_processor=ascending) == wanted
    assert byte_model.generate(prompts[4], count, logits_processor=ascending) == wanted[4]
    assert "".join(byte_model.stream(prompts[4], count, logits_processor=ascending)) == wanted[4]


def test_a_row_depends_on_its_seed_and_not_on_its_place(byte_model):
    one, two, three, _ = byte_model.generate(["x", "x", "x", "y"], 40, seed=[5, 6, 5, 7])  # 4 as below: one program
    assert one == three != two


def test_equal_prompts_of_one_call_get_texts_of_their_own(byte_model):
    made = byte_model.generate(["x", "y", "x", "x"], 40, seed=5)
    assert made == byte_model.generate(["x", "y", "x", "x"], 40, seed=[5, 5, 6, 7])
    assert made[0] == byte_model.generate("x", 40, seed=5) and len(set(made)) == 4


def test_the_stream_comes_in_pieces_the_first_of_them_early(byte_model):
    pieces = list(byte_model.stream("x", 100, seed=1))
    assert len(pieces) >= 100 / 16
    assert len(pieces[0].encode()) <= 4


def test_resuming_from_a_cache_equals_one_run(byte_model):
    generator, n = byte_model.generator, 50
    choice = Choice.of([3], repetition_penalty=1.1)
    nothing = np.full([1, CHUNK], -1, np.int32)
    given = nothing.copy()
    given[0, :5] = byte_model.vocabulary.encode("hello")
    start = generator.begin(1)

    whole, draft = generator.decode(start, given, n, choice)
    first, between = generator.decode(start, given, 20, choice)
    second, resumed = generator.decode(between, nothing, n - 20, choice)
    np.testing.assert_array_equal(whole[0, :n], np.concatenate([first[0, :20], second[0, : n - 20]]))
    for one, other in zip(tf.nest.flatten(draft), tf.nest.flatten(resumed), strict=True):
        if one.dtype == tf.float32:
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.xla
def test_no_token_costs_a_copy_of_the_cache(byte_model):
    """XLA copies each ring once, when a call begins, since the caller keeps its own; never inside the loop."""
    generator = byte_model.generator
    draft = generator.begin(1)
    compiler_ir = generator.many_steps.experimental_get_compiler_ir(
        (), draft, tf.fill([1, CHUNK], -1), tf.constant(CHUNK), Choice.of([0])
    )
    rings = draft.cache.keys + draft.cache.values
    shape = ",".join(map(str, rings[0].shape))
    copies = re.findall(rf"f32\[{shape}\]\S* copy\(", compiler_ir(stage="optimized_hlo"))
    assert len(copies) <= len(rings)


@pytest.mark.xla
@pytest.mark.skipif(not ON_CPU, reason="only a CPU reads a few texts so")
@pytest.mark.parametrize("texts", [1, 2])
def test_a_few_texts_are_read_by_one_program_for_all_layers(texts):
    """The compiled loop has the same number of operations for any number of layers, and does not copy their rings.

    No product is merged with an addition that reads it, since one core would compute it.
    """
    programs = []
    for n_layer in (2, 4):
        generator = Generator(random_model(dataclasses.replace(CONFIG, n_layer=n_layer)), Reach(40))
        draft = generator.begin(texts)
        draft = draft._replace(cache=generator.few.begin(draft.cache))
        compiler_ir = generator.few_steps.experimental_get_compiler_ir(
            generator.few.packed(),
            draft,
            tf.fill([texts, CHUNK], -1),
            tf.constant(CHUNK),
            Choice.of([0] * texts),
        )
        programs.append(compiler_ir(stage="hlo"))
    for operation in (" dot(", " scatter(", " exponential(", " reduce("):
        assert programs[0].count(operation) == programs[1].count(operation) > 0
    optimized, shape = compiler_ir(stage="optimized_hlo"), ",".join(map(str, draft.cache.keys.shape))
    assert len(re.findall(rf"f32\[{shape}\]\S* copy\(", optimized)) <= 2
    assert "kind=kLoop" in optimized and "kind=kOutput" not in optimized


@pytest.mark.xla
def test_a_short_prompt_traces_nothing_for_segments(byte_model):
    generator = Generator(byte_model.model, Reach(40))
    generator.generate([[1, 2, 3]], [3], 2, Choice.of([0]))
    functions = (generator.read_on, generator.read_segment, generator.many_steps, generator.few_steps)
    assert [each.experimental_get_tracing_count() for each in functions] == [
        0,
        0,
        *([0, 1] if ON_CPU else [1, 0]),
    ]


@pytest.mark.xla
def test_a_token_costs_the_same_however_long_the_text_is(byte_model):
    """The compiled step has static shapes, and the draft of a long text has the size of an empty one."""
    generator, choice = byte_model.generator, Choice.of([0])
    draft, given = generator.begin(1), tf.fill([1, CHUNK], -1)
    arguments = ((), draft, given, tf.constant(CHUNK), choice)
    program = generator.many_steps.experimental_get_compiler_ir(*arguments)(stage="hlo")
    assert "while(" in program and "<=" not in program  # XLA writes a dynamic size as <=n
    if ON_CPU:  # the form that `decode` returns
        draft = draft._replace(cache=generator.few.begin(draft.cache))
    shapes = [part.shape for part in tf.nest.flatten(draft)]
    for _ in range(4):  # the ring of 88 slots goes round more than twice
        _, draft = generator.decode(draft, given, tf.constant(CHUNK), choice)
    assert [part.shape for part in tf.nest.flatten(draft)] == shapes
    assert generator.many_steps.experimental_get_tracing_count() == 1


def test_repetition_penalty_is_on_what_prompt_and_text_have(byte_model):
    ids = byte_model.vocabulary.encode("ab" * 40)  # longer than a segment

    def greedy(max_tokens, penalty):
        choice = Choice.of([0], temperature=0.0, repetition_penalty=penalty)
        return byte_model.generator.generate(ids[None], [len(ids)], max_tokens, choice).numpy()[0].tolist()

    assert len({*ids.tolist(), *greedy(8, 1e4)}) == 2 + 8  # nothing comes twice
    log_prob = reference_log_probs(byte_model, ids)[-1]
    log_prob[list(set(ids))] *= 1.3
    assert greedy(1, 1.3) == [log_prob.argmax()]


def test_a_text_ends_before_the_first_stop_string(byte_model):
    text = byte_model.generate("x", 60, seed=4)
    stop = [text[30:33], text[20:22], "not in it"]
    expected = text[: min(text.find(string) for string in stop[:2])]
    assert byte_model.generate("x", 60, seed=4, stop=stop) == expected
    assert "".join(byte_model.stream("x", 60, seed=4, stop=stop)) == expected
    assert "".join(byte_model.stream("x", 60, seed=4, stop=["not in it"])) == text


def test_scores_are_those_of_the_model_with_mems(byte_model):
    texts = ["", "a", "wörter " * 20, "xyz" * 30, "b", "c"]  # as many as PROMPTS: one program
    scores = byte_model.score(texts)
    for text, score in zip(texts, scores, strict=True):
        ids = byte_model.vocabulary.encode(text)
        inputs = [byte_model.vocabulary.start_token, *ids[:-1]]
        expected = reference_log_probs(byte_model, inputs)[range(len(ids)), ids] if len(ids) else []
        np.testing.assert_allclose(score.log_probs, expected, rtol=0, atol=1e-4)
        assert score.total == pytest.approx(np.sum(expected), abs=1e-3)
        np.testing.assert_array_equal(score.ids, ids)
    assert byte_model.score(texts[2]).total == pytest.approx(scores[2].total, abs=1e-4)


def test_wrong_settings_are_refused_in_one_line(byte_model):
    with pytest.raises(InputError, match="max_tokens=0"):
        byte_model.generate("x", 0)
    with pytest.raises(InputError, match=r"top_p=1\.5"):
        byte_model.stream("x", 5, top_p=1.5)
    with pytest.raises(InputError, match="stop='abc'"):
        byte_model.stream("x", 5, stop="abc")


@pytest.mark.xla
@pytest.mark.parametrize(
    ("dtype", "int8", "texts"),
    [
        ("float32", False, 3),
        ("mixed_bfloat16", False, 1),
        pytest.param("float32", True, 1, marks=pytest.mark.slow),
        pytest.param("mixed_bfloat16", True, 3, marks=pytest.mark.slow),
    ],
)
def test_a_few_texts_are_read_like_many(dtype, int8, texts):
    """Other products, the same keys and values; `generate`, whose batch may have any size, takes the right ones."""
    model = random_model(dataclasses.replace(CONFIG, dtype=dtype))
    if int8:
        model.round_to_int8()
    generator = Generator(model, Reach(40), int8=int8)
    assert (generator.few is not None) == ON_CPU
    given = np.random.default_rng(0).integers(0, 256, [texts, CHUNK]).astype(np.int32)
    choice = Choice.of(list(range(texts)), temperature=0.0)
    readers = (generator.few or generator.many, generator.many)
    for_few, for_all = (generator.decode(generator.begin(texts), given, CHUNK, choice, reader) for reader in readers)
    of_few, of_all = (reader.end(draft.cache) for reader, (_, draft) in zip(readers, (for_few, for_all), strict=True))
    for few, other in zip(of_few.keys, of_all.keys, strict=True):
        few, other = tf.cast(few, tf.float32), tf.cast(other, tf.float32)
        assert np.abs(few - other).mean() < (1e-5 if dtype == "float32" else 0.02) * np.abs(other).mean()
    made = generator.generate(tf.constant(given), tf.fill([texts], CHUNK), tf.constant(1), choice)
    assert made.shape == (texts, 1)
    for row, of_few, of_all in zip(made[:, 0], for_few[0][:, -1], for_all[0][:, -1], strict=True):
        assert row in (of_few, of_all)


def test_half_a_surrogate_pair_is_read_as_the_replacement_character(byte_model):
    half, same = "half \ud83d", "half \ufffd"
    assert byte_model.generate(half, 4) == byte_model.generate(same, 4)
    assert "".join(byte_model.stream(half, 4)) == "".join(byte_model.stream(same, 4))
    assert byte_model.score(half).total == byte_model.score([same])[0].total
