import contextlib
import dataclasses
import itertools
import os

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from txl_tf.data import lanes, manifest, records
from txl_tf.errors import InputError
from txl_tf.settings.run import DataConfig

TOKENS = 5003


def take(dataset, number):
    return [(x.numpy(), y.numpy()) for x, y in itertools.islice(iter(dataset), number)]


def training_batches(corpus, batch_size, tgt_len, step=0, random_offset=False, seed=0, **hosts):
    data = DataConfig(batch_size=batch_size, tgt_len=tgt_len, random_offset=random_offset)
    return lanes.TrainingLanes(corpus, data, seed).batches(step, **hosts)


def assert_same(batches, others):
    assert len(batches) == len(others)
    for batch, other in zip(batches, others, strict=True):
        np.testing.assert_array_equal(batch, other)


@pytest.mark.parametrize(
    ("batch_size", "tgt_len", "vocab_size"), [(3, 10, 256), (4, 7, 300), (1, 33, 70_000), (50, 50, 300), (2, 2501, 300)]
)
def test_training_lanes_are_the_tokens_in_order(make_corpus, batch_size, tgt_len, vocab_size):
    corpus, arrays = make_corpus(TOKENS, vocab_size)
    tokens = arrays["train"][0]
    segments = (TOKENS - 1) // (batch_size * tgt_len)
    assert TOKENS - 1 - segments * batch_size * tgt_len < batch_size * tgt_len  # less than a segment a lane is left
    batches = take(training_batches(corpus, batch_size, tgt_len), 2 * segments + 1)
    for step, (inputs, targets) in enumerate(batches):
        starts = np.arange(batch_size) * segments * tgt_len + step % segments * tgt_len
        places = starts[:, None] + np.arange(tgt_len)
        np.testing.assert_array_equal(inputs, tokens[places])
        np.testing.assert_array_equal(targets, tokens[places + 1])


def test_blocks_may_be_shorter_or_longer_than_records(make_corpus, monkeypatch):
    corpus, _ = make_corpus(TOKENS)
    expected = take(training_batches(corpus, 3, 20), 100)
    for block in (20, 45, 2000):
        monkeypatch.setattr(lanes, "_LANE_BLOCK_TOKENS", block)
        assert_same(take(training_batches(corpus, 3, 20), 100), expected)


@pytest.mark.parametrize("random_offset", [False, True])
def test_seeking_gives_what_an_uninterrupted_reader_gives(make_corpus, random_offset):
    corpus, _ = make_corpus(TOKENS, passes=2)
    options = {"random_offset": random_offset, "seed": 3}
    batches = take(training_batches(corpus, 4, 60, **options), 70)  # 20 steps an epoch
    for step in (7, 19, 20, 65):
        assert_same(take(training_batches(corpus, 4, 60, step=step, **options), 5), batches[step : step + 5])


def test_random_offsets_move_the_remainder_and_nothing_else(make_corpus):
    corpus, arrays = make_corpus(TOKENS)
    tokens, batch_size, tgt_len = arrays["train"][0], 4, 120
    segments = (TOKENS - 1) // (batch_size * tgt_len)
    slack = TOKENS - 1 - segments * batch_size * tgt_len
    windows = np.lib.stride_tricks.sliding_window_view(tokens, tgt_len)
    offsets = []
    for epoch in range(5):
        options = {"step": epoch * segments, "random_offset": True, "seed": 5}
        dataset = training_batches(corpus, batch_size, tgt_len, **options)
        inputs = np.concatenate([x for x, _ in take(dataset, segments)], axis=1)
        (offset,) = np.flatnonzero((windows[: slack + 1] == inputs[0, :tgt_len]).all(axis=1))
        np.testing.assert_array_equal(inputs.ravel(), tokens[offset : offset + inputs.size])
        offsets.append(offset)
    assert len(set(offsets)) > 2
    assert max(offsets) <= slack
    other_seed = training_batches(corpus, batch_size, tgt_len, random_offset=True, seed=6)
    assert not np.array_equal(take(other_seed, 1)[0][0][0], tokens[offsets[0] : offsets[0] + tgt_len])


@pytest.mark.parametrize(("hosts", "replicas"), [(1, 2), (2, 3), (4, 1)])
def test_replicas_and_hosts_side_by_side_are_one_batch(make_corpus, hosts, replicas):
    corpus, _ = make_corpus(TOKENS)
    layout = {"num_hosts": hosts, "replicas_per_host": replicas}

    def joined(read):
        per_host = [take(read(host=host, **layout), 10_000) for host in range(hosts)]
        steps = [zip(*[iter(elements)] * replicas, strict=True) for elements in per_host]
        for together in zip(*steps, strict=True):
            parts = [part for host_parts in together for part in host_parts]
            yield tuple(np.concatenate(side) for side in zip(*parts, strict=True))

    one = lanes.EvaluationLanes(corpus, "valid", 12, 16).batches()
    many = joined(lambda **layout: lanes.EvaluationLanes(corpus, "valid", 12, 16).batches(**layout))
    assert_same(take(one, 10_000), list(many))

    one = training_batches(corpus, 12, 16, step=5)
    many = joined(lambda **k: training_batches(corpus, 12, 16, step=5, **k).take(40 * replicas))
    assert_same(take(one, 40), list(many))


def test_distributed_strategy_gets_the_rows_of_one_replica(make_corpus, two_replicas):
    corpus, _ = make_corpus(TOKENS)
    strategy = two_replicas
    dataset = strategy.distribute_datasets_from_function(
        lambda context: training_batches(corpus, 4, 16, replicas_per_host=2)
    )
    together = next(iter(dataset))
    rows = tf.concat(strategy.experimental_local_results(together[0]), 0)
    np.testing.assert_array_equal(rows, take(training_batches(corpus, 4, 16), 1)[0][0])


def test_a_host_reads_only_its_own_lanes(make_corpus):
    corpus, _ = make_corpus(TOKENS)
    expected = take(training_batches(corpus, 4, 50), 20)
    for shard in corpus.splits["train"].passes[0][:7]:  # of 15: the first lanes' tokens
        os.remove(corpus.path(shard.file))
    second = take(training_batches(corpus, 4, 50, host=1, num_hosts=2), 20)
    assert_same(second, [(x[2:], y[2:]) for x, y in expected])


@pytest.mark.parametrize(("batch_size", "tgt_len"), [(1, 64), (4, 7), (7, 100), (2501, 3), (100, 60)])
def test_evaluation_scores_every_token_but_the_first_of_each_lane_once(make_corpus, batch_size, tgt_len):
    corpus, arrays = make_corpus(TOKENS)
    tokens = arrays["valid"][0]
    batches = take(lanes.EvaluationLanes(corpus, "valid", batch_size, tgt_len).batches(), 10_000)
    assert len(batches) == lanes.EvaluationLanes(corpus, "valid", batch_size, tgt_len).steps
    inputs, targets = (np.concatenate(side, axis=1) for side in zip(*batches, strict=True))
    parts = np.array_split(tokens, batch_size)  # lengths differ by at most one, longer ones first
    for lane, lane_inputs, lane_targets in zip(parts, inputs, targets, strict=True):
        count = len(lane) - 1
        np.testing.assert_array_equal(lane_inputs[:count], lane[:-1])
        np.testing.assert_array_equal(lane_targets[:count], lane[1:])
        assert (lane_inputs[count:] == 0).all()
        assert (lane_targets[count:] == -1).all()


def test_epochs_take_turns_with_the_passes(make_corpus):
    corpus, arrays = make_corpus(TOKENS, passes=3)
    batches = take(training_batches(corpus, 1, 1000), 21)  # 5 steps an epoch
    for epoch in range(5):
        np.testing.assert_array_equal(batches[5 * epoch][0][0], arrays["train"][epoch % 3][:1000])


def test_batches_have_static_shapes(make_corpus):
    corpus, _ = make_corpus(TOKENS)
    spec = tf.TensorSpec([3, 16], tf.int32)
    assert training_batches(corpus, 6, 16, replicas_per_host=2).element_spec == (spec, spec)
    assert lanes.EvaluationLanes(corpus, "valid", 6, 16).batches(num_hosts=2).element_spec == (spec, spec)


def test_no_python_in_the_reader(make_corpus):
    """A graph with Python functions in it cannot be sent to the hosts of a TPU pod."""
    corpus, _ = make_corpus(TOKENS)
    for dataset in (
        training_batches(corpus, 4, 16, random_offset=True),
        lanes.EvaluationLanes(corpus, "valid", 4, 16).batches(),
    ):
        serialized = tf.raw_ops.DatasetToGraphV2(input_dataset=dataset._variant_tensor).numpy()
        graph = graph_pb2.GraphDef.FromString(serialized)
        ops = {node.op for node in graph.node}
        ops |= {node.op for function in graph.library.function for node in function.node_def}
        assert "TFRecordDataset" in ops or "TFRecordDatasetV2" in ops
        assert not {op for op in ops if "PyFunc" in op or "Generator" in op}


def test_batches_that_do_not_fit_say_so_at_once(make_corpus):
    corpus, _ = make_corpus(100)
    with pytest.raises(InputError, match=r"needs 161 tokens, but train has 100: lower batch_size"):
        training_batches(corpus, 10, 16)
    with pytest.raises(InputError, match="valid has 100 tokens, too few for 51 lanes"):
        lanes.EvaluationLanes(corpus, "valid", 51, 16)
    with pytest.raises(InputError, match="batch_size 5 is not a multiple of the 4 replicas"):
        training_batches(corpus, 5, 4, num_hosts=2, replicas_per_host=2)
    with pytest.raises(InputError, match="no split 'test': it has train, valid"):
        lanes.EvaluationLanes(corpus, "test", 2, 4)


def test_a_flipped_bit_is_named_with_its_file(make_corpus):
    corpus, _ = make_corpus(TOKENS)
    path = corpus.path(corpus.splits["train"].passes[0][3].file)
    with open(path, "r+b") as file:
        file.seek(200)
        byte = file.read(1)[0]
        file.seek(200)
        file.write(bytes([byte ^ 4]))
    with pytest.raises(InputError, match=rf"{path} is damaged") as error, lanes.named_read_errors(corpus):
        take(training_batches(corpus, 1, 50), 90)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("vocab_size", [250, 300, 70_000])
def test_ids_beyond_the_vocabulary_are_named_with_their_file(make_corpus, vocab_size):
    """In files whose checksums are right, since they were made with a larger vocabulary."""
    corpus, arrays = make_corpus(TOKENS, vocab_size)
    last = int(arrays["train"][0].max())
    readers = (
        lambda corpus: list(training_batches(corpus, 1, TOKENS - 1).take(1)),
        lambda corpus: list(lanes.Shards(corpus, "train").window(0, tf.constant(0, tf.int64), TOKENS)),
        lambda corpus: corpus.check_content(),
    )
    for known in (last + 1, last):
        read = dataclasses.replace(corpus, vocab_size=known, splits={"train": corpus.splits["train"]})
        match = rf"train-0-\d+.tfrecord has the token id {last:,}, but the vocabulary has {last:,} tokens: prepare"
        for reader in readers:
            refusal = contextlib.nullcontext() if known > last else pytest.raises(InputError, match=match)
            with refusal as error, lanes.named_read_errors(read):
                reader(read)
            assert known > last or "\n" not in str(error.value)


def test_negative_ids_are_not_in_a_vocabulary(make_corpus):
    corpus, _ = make_corpus(TOKENS, vocab_size=70_000)
    (split,) = corpus.splits["train"].passes
    written = records.write_shard(corpus.path(split[0].file), split[0].file, np.full(split[0].tokens, -1, np.int32))
    splits = corpus.splits | {"train": manifest.Split(corpus.splits["train"].tokens, ((written, *split[1:]),))}
    manifest.write_manifest(dataclasses.replace(corpus, splits=splits))
    read = manifest.load_corpus(corpus.data_dir)
    with pytest.raises(InputError, match="has the token id -1,"), lanes.named_read_errors(read):
        take(training_batches(read, 1, 50), 2)
