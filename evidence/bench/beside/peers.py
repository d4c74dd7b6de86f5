"""tensorflow/models' TransformerXL and XLNet, as the benchmarks use them. Not a script.

It runs in the Python of that peer, so nothing is imported before it is called.
"""

import os


def tf_models_stack(vocab_size, n_layer, d_model, n_head, d_head, d_inner, mem_len, dropout, tie_attention_biases):
    """The layers of tensorflow/models' TransformerXL; embedding and softmax are the caller's."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tf_keras
    from official.nlp.modeling.layers import transformer_xl

    return transformer_xl.TransformerXL(
        vocab_size=vocab_size,
        num_layers=n_layer,
        hidden_size=d_model,
        num_attention_heads=n_head,
        head_size=d_head,
        inner_size=d_inner,
        dropout_rate=dropout,
        attention_dropout_rate=0.0,
        initializer=tf_keras.initializers.RandomNormal(stddev=0.02),
        tie_attention_biases=tie_attention_biases,
        memory_length=mem_len,
        reuse_length=0,
        inner_activation="relu",
    )


def tf_models_inputs(batch_size, tgt_len, mem_len, d_model):
    """(relative position encoding, attention mask) of a segment after `mem_len` tokens of memory."""
    import tensorflow as tf

    distances = tf.range(mem_len + tgt_len, -1, -1, dtype=tf.float32)  # its relative positions need K + 1 rows
    angles = distances[:, None] / 10000 ** (tf.range(0, d_model, 2, dtype=tf.float32) / d_model)
    positions = tf.concat([tf.sin(angles), tf.cos(angles)], -1)[None]
    mask = tf.linalg.band_part(tf.ones([tgt_len, mem_len + tgt_len]), -1, mem_len)[None, None]
    return tf.tile(positions, [batch_size, 1, 1]), tf.tile(mask, [batch_size, 1, 1, 1])


def tf_models_xlnet(**settings):
    """The embedding and the layers of tensorflow/models' XLNet, with GELU as in the official code."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tf_keras
    from official.modeling import activations  # noqa: F401
    from official.nlp.modeling.networks import XLNetBase

    return XLNetBase(
        attention_type="bi",
        initializer=tf_keras.initializers.RandomNormal(stddev=0.02),
        tie_attention_biases=False,
        inner_activation="gelu",
        **settings,
    )
