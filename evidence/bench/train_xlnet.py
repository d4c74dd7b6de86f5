r"""Measures the speed of XLNet's pretraining beside other implementations, in alternating rounds on one machine.

    python evidence/bench/train_xlnet.py --peer=tf_models=PYTHON --peer=huggingface=PYTHON

The workload, in one of the sizes below: reuse_len tokens of a segment are remembered, and tokens are permuted in groups
of reuse_len. Each text has two segments and CLS; half of the lanes run backward. float32, dropout and dropatt 0.1, Adam
and clipping by the global norm. `ours_bfloat16` is the same in mixed bfloat16.

train.py tells how to create the environments of the peers, how rounds alternate, and what the JSON line has.
tokens_per_sec counts the B T tokens of a segment.

All read the same segments with the memory of the step before, and minimize the same loss. The differences: Ours makes
the masks from orders and kinds of tokens in every step; the peers get finished masks. The peers draw a dropout mask of
the positions for each lane; ours has one for all lanes. Hugging Face has one rate for dropout and dropatt.
tensorflow/models does not drop inside the feed-forward block. Its own head has a dense layer and a norm that XLNet
does not have; here it gets the same softmax as the others.
"""

import sys

from beside import peers, sizes, training

NAMES = ("n_layer", "d_model", "n_head", "d_head", "d_inner", "vocab_size", "batch_size", "tgt_len", "mem_len")
NAMES += ("reuse_len", "num_predict")
NAMED = {
    "base": dict(zip(NAMES, (6, 512, 8, 64, 2048, 8000, 4, 128, 128, 64, 21), strict=True)),
    "narrow": dict(zip(NAMES, (4, 256, 4, 64, 1024, 5000, 8, 64, 64, 32, 10), strict=True)),
    "wide": dict(zip(NAMES, (2, 768, 12, 64, 3072, 32000, 2, 256, 192, 128, 42), strict=True)),
}
N, D, H, D_HEAD, D_INNER, V, B, T, M, R, P = sizes.chosen(NAMED).values()
DROPOUT, CLIP = 0.1, 1.0
CONTEXT, FUNCTIONAL, TARGET = range(3)  # kinds of tokens, numbered as in txl_tf/settings/run.py
SIZES = {"n_layer": N, "d_model": D, "n_head": H, "d_head": D_HEAD, "d_inner": D_INNER, "vocab_size": V}


def step_flops():
    from txl_tf.models.xlnet.config import XLNetConfig
    from txl_tf.objectives.flops import xlnet

    return xlnet(XLNetConfig(mem_len=M, reuse_len=R, **SIZES), B, T, P)


def segments():
    """Tokens, ids of segments, ranks and kinds of tokens: int32 [B, T] each."""
    import numpy as np

    draw = np.random.default_rng(0)
    tokens = draw.integers(0, V, [B, T], dtype=np.int32)
    ids = np.zeros([B, T], np.int32)
    ids[:, R + R // 2 :], ids[:, -1] = 1, 2  # A begins in the first part, B in the second; CLS
    rank = np.concatenate([draw.permuted(np.tile(np.arange(R), [B, 1]), axis=1) for _ in range(T // R)], axis=1)
    kind = np.full([B, T], CONTEXT, np.int32)
    kind[:, [R + R // 2 - 1, -2, -1]] = FUNCTIONAL  # SEP, SEP, CLS
    for lane in kind:
        first, second = np.arange(R), R + np.flatnonzero(lane[R:] == CONTEXT)
        lane[draw.choice(first, P - P // 2, replace=False)] = TARGET
        lane[draw.choice(second, P // 2, replace=False)] = TARGET
    return tokens, ids, rank.astype(np.int32), kind


def peers_inputs():
    """The peers' inputs: tokens, ids, visible [B, T, T], and the P targets' one-hot positions [B, P, T], tokens [B, P].

    The rule of visibility is that of the official code: rev is -1 for context, else the rank. A query's own time is its
    rank for targets, and rev + 1 for others; it sees tokens with a smaller rev. The second part sees all of the first.
    """
    import numpy as np

    tokens, ids, rank, kind = segments()
    second = (np.arange(T) >= R) * (T + 1)
    rev = np.where(kind == CONTEXT, -1, rank)
    own = np.where(kind == TARGET, rank, rev + 1)
    visible = (own + second)[:, :, None] > (rev + second)[:, None, :]
    positions = np.stack([np.flatnonzero(lane == TARGET) for lane in kind])
    mapping = np.eye(T, dtype=np.float32)[positions]
    return tokens, ids, visible, mapping, np.take_along_axis(tokens, positions, axis=1)


def ours(dtype="float32"):
    import tensorflow as tf

    from txl_tf.data.xlnet.pairs import PermutationBatch
    from txl_tf.models.xlnet.config import XLNetConfig, XLNetRunConfig
    from txl_tf.models.xlnet.model import XLNet
    from txl_tf.objectives.permutation_lm import PermutationLM
    from txl_tf.settings.pretraining import PairsConfig, PermutationLMConfig
    from txl_tf.settings.run import TrainConfig

    def objective():
        rule, data = PermutationLMConfig(num_predict=P, perm_size=R), PairsConfig(B, T)
        config = XLNetConfig(mem_len=M, reuse_len=R, dropout=DROPOUT, dropatt=DROPOUT, dtype=dtype, **SIZES)
        return PermutationLM(XLNet(config), XLNetRunConfig(config, data, objective=rule))

    batch = PermutationBatch(*(tf.constant(part) for part in segments()), tf.range(B) >= B // 2)
    return training.our_steps(objective, TrainConfig(clip=CLIP), batch)


def huggingface():
    import torch
    from transformers import XLNetConfig, XLNetLMHeadModel

    config = XLNetConfig(
        vocab_size=V,
        n_layer=N,
        d_model=D,
        n_head=H,
        d_inner=D_INNER,
        ff_activation="gelu_new",
        dropout=DROPOUT,
        mem_len=M,
        reuse_len=R,
        bi_data=True,
    )
    device = training.torch_device()
    tokens, ids, visible, mapping, targets = (torch.tensor(part, device=device) for part in peers_inputs())
    inputs = {"input_ids": tokens.long(), "token_type_ids": ids.long(), "target_mapping": mapping}
    inputs |= {"perm_mask": (~visible).float(), "labels": targets.long()}
    mems = [torch.zeros(M, B, D, device=device) for _ in range(N)]

    def loss(model):
        nonlocal mems
        output = model(**inputs, mems=mems, use_mems=True)
        mems = output.mems
        return output.loss

    return training.torch_steps(XLNetLMHeadModel(config).to(device), CLIP, loss)


def tf_models():
    network = peers.tf_models_xlnet(
        vocab_size=V,
        num_layers=N,
        hidden_size=D,
        num_attention_heads=H,
        head_size=D_HEAD,
        inner_size=D_INNER,
        dropout_rate=DROPOUT,
        attention_dropout_rate=DROPOUT,
        two_stream=True,
        bi_data=True,
        memory_length=M,
        reuse_length=R,
    )
    import tensorflow as tf

    tokens, ids, visible, mapping, targets = (tf.constant(part) for part in peers_inputs())
    bias = tf.Variable(tf.zeros([V]))

    def loss(state):
        hidden, new_state = network(
            input_ids=tokens,
            segment_ids=ids,
            permutation_mask=tf.cast(visible, tf.float32),
            target_mapping=mapping,
            masked_tokens=tf.reduce_sum(mapping, axis=1),
            state=list(state),
            training=True,
        )
        hidden = tf.nn.dropout(hidden, DROPOUT)
        logits = tf.matmul(hidden, network.get_embedding_lookup_table(), transpose_b=True) + bias
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)), new_state

    def variables():
        return [*network.trainable_variables, bias]

    return training.tf_keras_steps(loss, variables, CLIP, [tf.zeros([B, M, D]) for _ in range(N)])


if __name__ == "__main__":
    others = {"huggingface": huggingface, "tf_models": tf_models}
    sys.exit(training.run(__doc__, ours, others, step_flops, B * T, NAMED))
