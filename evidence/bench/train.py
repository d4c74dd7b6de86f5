r"""Measures training speed beside other implementations, in alternating rounds on one machine.

    python evidence/bench/train.py --peer=tf_models=/path/to/venv/bin/python --peer=huggingface=/path/to/venv/bin/python

The workload, in one of the sizes below: float32, dropout 0.1, dropatt 0, Adam and clipping by the global norm.
`ours_bfloat16` is the same in mixed bfloat16, for CPUs with instructions for it (under torch's autocast Hugging Face's
code fails). Peers run in their own environments, which you create:

    tf_models     pip install tensorflow==2.20.0 tf_keras==2.20.1 gin-config scipy pyyaml
                  pip install --no-deps tf-models-official==2.20.0 tensorflow-text==2.20.1 tensorflow-hub \
                      tensorflow-model-optimization
    huggingface   pip install torch==2.13.0 transformers==4.35.2 'numpy<2'

Each implementation trains in rounds of a few seconds while the others wait, so that a slow period of the machine
affects all alike. One JSON line has the medians, their ratios, the machine's matmul peaks measured in the same
rounds, and each process's peak of resident memory, including that of TensorFlow or torch.
"""

import sys

from beside import peers, sizes, training

NAMES = ("n_layer", "d_model", "n_head", "d_head", "d_inner", "vocab_size", "batch_size", "tgt_len", "mem_len")
NAMED = {
    "base": dict(zip(NAMES, (6, 512, 8, 64, 2048, 204, 8, 128, 128), strict=True)),
    "narrow": dict(zip(NAMES, (4, 256, 4, 64, 1024, 5000, 16, 64, 192), strict=True)),
    "wide": dict(zip(NAMES, (3, 768, 12, 64, 3072, 204, 2, 384, 384), strict=True)),
}
N, D, H, D_HEAD, D_INNER, V, B, T, M = sizes.chosen(NAMED).values()
DROPOUT, CLIP = 0.1, 0.25

SIZES = {"n_layer": N, "d_model": D, "d_embed": D, "n_head": H, "d_head": D_HEAD, "d_inner": D_INNER}


def step_flops():
    from txl_tf.models.transformer_xl.config import TransformerXLConfig
    from txl_tf.objectives.flops import transformer_xl

    return transformer_xl(TransformerXLConfig(vocab_size=V, mem_len=M, **SIZES), B, T)


def ours(dtype="float32"):
    import tensorflow as tf

    from txl_tf.models.transformer_xl.config import TransformerXLConfig, TransformerXLRunConfig
    from txl_tf.models.transformer_xl.model import TransformerXL
    from txl_tf.objectives.causal_lm import CausalLM
    from txl_tf.settings.run import TrainConfig

    def objective():
        config = TransformerXLConfig(vocab_size=V, mem_len=M, dropout=DROPOUT, dtype=dtype, **SIZES)
        return CausalLM(TransformerXL(config), TransformerXLRunConfig(config))

    tokens = tf.random.uniform([B, T], maxval=V, dtype=tf.int32)
    return training.our_steps(objective, TrainConfig(clip=CLIP), (tokens, tokens))


def huggingface():
    config = {"vocab_size": V, "mem_len": M, "dropout": DROPOUT, **SIZES}
    return training.huggingface_steps(config, B, T, CLIP)


def tf_models():
    stack = peers.tf_models_stack(V, N, D, H, D_HEAD, D_INNER, M, dropout=DROPOUT, tie_attention_biases=True)
    import tensorflow as tf

    embedding = tf.Variable(tf.random.normal([V, D], stddev=0.02))
    bias = tf.Variable(tf.zeros([V]))
    tokens = tf.random.uniform([B, T], maxval=V, dtype=tf.int32)
    positions, mask = peers.tf_models_inputs(B, T, M, D)

    def loss(state):
        hidden = tf.nn.dropout(tf.gather(embedding, tokens) * D**0.5, DROPOUT)
        hidden, new_state = stack(
            content_stream=hidden,
            relative_position_encoding=positions,
            state=list(state),
            content_attention_mask=mask,
            training=True,
        )
        logits = tf.matmul(hidden, embedding, transpose_b=True) + bias
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tokens, logits)), new_state

    def variables():
        return [*stack.trainable_variables, embedding, bias]

    return training.tf_keras_steps(loss, variables, CLIP, [tf.zeros([B, M, D]) for _ in range(N)])


if __name__ == "__main__":
    others = {"huggingface": huggingface, "tf_models": tf_models}
    sys.exit(training.run(__doc__, ours, others, step_flops, B * T, NAMED))
