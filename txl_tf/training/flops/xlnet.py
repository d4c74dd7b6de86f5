"""The number of floating-point operations in a step of pretraining, for MFU."""

from __future__ import annotations

from txl_tf.models.xlnet.config import XLNetConfig, XLNetRunConfig


def step_flops(config: XLNetRunConfig) -> int:
    """`training_flops` of a step of a run."""
    return training_flops(config.model, config.data.batch_size, config.data.tgt_len, config.objective.num_predict)


def training_flops(config: XLNetConfig, batch_size: int, tgt_len: int, predictions: int) -> int:
    """Multiplications and additions of the matmuls of one step of pretraining, counted as in transformer_xl.py.

    In the last layer only the query stream is counted, and only keys and values of the content stream. With
    E = H d_head, K = M + T and n rows, T + P or in the last layer P, per layer:

        query, output                      3 * 2 B n 2 D E
        key, value                         3 * 2 B T 2 D E
        feed-forward                       3 * 2 B n 2 D d_inner
        memory's keys and values           2 * 2 B M 2 D E
        scores, weighted values            3 * 2 B n K 3 E          (the content's, the positions')
        projected sinusoids                2 * 2 (K + T - 1) D E

    and once 3 * 2 B P D V for the logits. Segments and the sign of distances in backward text are not counted.
    batch_size is that of all replicas.
    """
    B, T, M, D = batch_size, tgt_len, config.mem_len, config.d_model
    K, E = M + T, config.n_head * config.d_head

    def layer(rows: int) -> int:
        per_row = 3 * 2 * B * rows * (2 * D * E + 2 * D * config.d_inner + K * 3 * E)
        return per_row + (3 * T + 2 * M) * 2 * B * 2 * D * E + 2 * 2 * (K + T - 1) * D * E

    vocabulary = 3 * 2 * B * predictions * D * config.vocab_size
    return (config.n_layer - 1) * layer(T + predictions) + layer(predictions) + vocabulary
