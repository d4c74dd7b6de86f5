"""Draws tokens by a rule of one's own, no pair of tokens twice: python examples/own_sampler.py [PROMPT]

`network(tokens, mems)` reads a segment and gives hidden states and the new memory; `network.log_prob` turns hidden
states into the log-probabilities of all tokens. So any rule can choose the next one.
"""

import sys

import numpy as np
import tensorflow as tf

import txl_tf


def main(prompt="Once upon a time there was", model_dir="fairy_tales", tokens=100, temperature=0.7, seed=1):
    """Continues a prompt, token by token."""
    model = txl_tf.load(model_dir)
    network, vocabulary, rng = model.network, model.vocabulary, np.random.default_rng(seed)

    @tf.function
    def read(token, mems):
        hidden, mems = network(token, mems)
        return network.log_prob(hidden)[0, -1], mems

    mems, ids, pairs = network.initial_mems(1), list(vocabulary.encode(prompt)), set()
    for i in range(len(ids) + tokens - 1):
        log_probs, mems = read(tf.constant([[ids[i]]], tf.int32), mems)
        if i == len(ids) - 1:
            allowed = np.array([(ids[-1], token) not in pairs for token in range(vocabulary.vocab_size)])
            scores = np.where(allowed, log_probs.numpy() / temperature, -np.inf)
            ids.append(int(np.argmax(scores + rng.gumbel(size=scores.shape))))
            pairs.add((ids[-2], ids[-1]))
    print(vocabulary.decode(ids))


if __name__ == "__main__":
    main(*sys.argv[1:])
