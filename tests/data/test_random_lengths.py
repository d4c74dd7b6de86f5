import itertools

import numpy as np
import pytest

from txl_tf.data.lanes import RandomLanes
from txl_tf.errors import InputError
from txl_tf.settings.run import DataConfig

TOKENS, B, T, STD = 5003, 3, 20, 4
DATA = DataConfig(batch_size=B, tgt_len=T, tgt_len_std=STD)


def take(lanes, number, step=0, **hosts):
    dataset = lanes.batches(step, **hosts)
    return [(x.numpy(), y.numpy()) for x, y in itertools.islice(iter(dataset), number)]


def test_an_epoch_reads_each_lane_once_in_order_and_the_next_one_other_lengths(make_corpus):
    corpus, arrays = make_corpus(TOKENS, 70_000)
    tokens, lane = arrays["train"][0], (TOKENS - 1) // B
    lanes = RandomLanes(corpus, DATA, seed=3)
    epochs = [lanes.lengths(epoch).numpy() for epoch in range(2)]
    assert [lengths.sum() for lengths in epochs] == [lane, lane] and epochs[0].tolist() != epochs[1].tolist()
    assert lanes.unused == TOKENS - 1 - B * lane
    batches = take(lanes, len(epochs[0]) + len(epochs[1]) + 1)
    places = [
        (length, end - length) for lengths in epochs for length, end in zip(lengths, lengths.cumsum(), strict=True)
    ]
    for (inputs, targets), (length, start) in zip(batches, places, strict=False):
        assert inputs.shape == targets.shape == (B, T + 3 * STD)
        expected = np.arange(B)[:, None] * lane + start + np.arange(length)
        np.testing.assert_array_equal(inputs[:, :length], tokens[expected])
        np.testing.assert_array_equal(targets[:, :length], tokens[expected + 1])
        assert (inputs[:, length:] == 0).all() and (targets[:, length:] == -1).all()


@pytest.mark.parametrize("hosts", [{}, {"replicas_per_host": 3}, {"host": 2, "num_hosts": 3}])
def test_seeking_gives_what_an_uninterrupted_reader_gives(make_corpus, hosts):
    corpus, _ = make_corpus(TOKENS)
    lanes = RandomLanes(corpus, DATA, seed=3)
    replicas = hosts.get("replicas_per_host", 1)
    whole, own = take(lanes, 200), take(lanes, 200 * replicas, **hosts)
    for step in (1, 64, 85, 190):
        for mine, theirs in zip(take(lanes, 3 * replicas, step, **hosts), own[step * replicas :], strict=False):
            np.testing.assert_array_equal(mine, theirs)
    rows = [np.concatenate([own[i * replicas + k][0] for k in range(replicas)]) for i in range(200)]
    for mine, (theirs, _) in zip(rows, whole, strict=True):
        np.testing.assert_array_equal(mine, theirs[hosts.get("host", 0) :][: len(mine)])


def test_lengths_have_the_distribution(make_corpus):
    corpus, _ = make_corpus(2_000_000, 256)
    data = DataConfig(batch_size=1, tgt_len=70, tgt_len_std=5)
    lanes = RandomLanes(corpus, data, seed=1)
    lengths = lanes.lengths(0).numpy()[:-1]
    assert lengths.min() >= 5 and lengths.max() <= data.longest == 85
    short = lengths < 52
    assert abs(short.mean() - 0.05) < 0.005
    for drawn, mean in ((lengths[short], 35), (lengths[~short], 70)):  # rounded down: half a token less
        assert abs(drawn.mean() - (mean - 0.5)) < 0.3 and abs(drawn.std() - 5) < 0.3
    assert abs(len(lengths) - lanes.epoch_steps) < 0.01 * len(lengths)


def test_wrong_settings_are_refused(make_corpus):
    with pytest.raises(InputError, match="tgt_len_std=7 must be less than a third of tgt_len=20"):
        DataConfig(tgt_len=20, tgt_len_std=7)
    with pytest.raises(InputError, match="give tgt_len_std or random_offset, not both"):
        DataConfig(tgt_len=20, tgt_len_std=2, random_offset=True)
    with pytest.raises(InputError, match="lower batch_size or tgt_len"):
        RandomLanes(make_corpus(50)[0], DATA, seed=1)
