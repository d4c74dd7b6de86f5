"""The interval of a result, and what stands beside it."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from txl_tf.data.examples.example_set import ExampleSet, TaskCorpus
from txl_tf.metrics.labelling import interval
from txl_tf.tasks.classification import Classification


@dataclasses.dataclass
class Tokens:
    vocab_size: int = 9


def example_set(labels, seed):
    """Texts of random tokens, up to 5 of 6; a text of class 1 has token 7 somewhere. Padding is on the left."""
    rng = np.random.default_rng(seed)
    tokens, padding = np.zeros([len(labels), 6], np.int32), np.ones([len(labels), 6], bool)
    for i, label in enumerate(labels):
        length = rng.integers(2, 6)
        tokens[i, -length:], padding[i, -length:] = rng.integers(1, 6, length), False
        tokens[i, 0] = 7  # what padding hides says nothing
        if label:
            tokens[i, -rng.integers(1, length)] = 7
    return ExampleSet({"tokens": tokens, "padding": padding, "label": np.array(labels)}, {}, labels=("no", "yes"))


@pytest.fixture(scope="module")
def corpus():
    return TaskCorpus(example_set([0, 0, 1] * 20, 1), example_set([0, 1, 1, 0] * 10, 2), Tokens(), {}, {})


def test_interval():
    low, high = interval(25 / 30, 30)
    assert (round(low, 2), round(high, 2)) == (0.66, 0.93)
    for share, count in ((0.0, 10), (1.0, 7), (0.37, 400)):
        known = stats.binomtest(round(share * count), count).proportion_ci(method="wilson")
        assert interval(share, count) == pytest.approx(known, abs=1e-4)


def test_a_classifier_has_the_most_frequent_class_and_a_bag_of_tokens_beside_it(corpus):
    beside = Classification().baselines(corpus)
    assert beside == {"most_frequent_class": 0.5, "bag_of_tokens": 1.0}
    found, said = Classification().worth({"accuracy": 0.6, "examples": 40} | beside)
    assert found == {"accuracy_interval": list(interval(0.6, 40))}
    assert (
        Classification().worth({"accuracy": 0.6, "examples": 40})[1]
        == "accuracy 60.0%, 95 % interval 45% to 74% (40 examples)"
    )
    assert said == (
        "accuracy 60.0%, 95 % interval 45% to 74% (40 examples); the most frequent class alone 50.0%, "
        "a bag of tokens 100.0%"
    )
