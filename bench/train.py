r"""Measures training speed beside other implementations, in alternating rounds on one machine.

    python bench/train.py --peer=tf_models=/path/to/venv/bin/python --peer=huggingface=/path/to/venv/bin/python

The workload: 6 layers, D 512, 8 heads of 64, d_inner 2048, V 204, B 8, T = M = 128, float32, dropout 0.1, dropatt 0,
Adam and clipping by the global norm; `ours_bfloat16` is the same in mixed bfloat16, which is faster on CPUs with
instructions for it (under torch's autocast Hugging Face's code fails). Peers run in their own environments, which you
create:

    tf_models     pip install tensorflow==2.20.0 tf_keras==2.20.1 gin-config scipy pyyaml
                  pip install --no-deps tf-models-official==2.20.0 tensorflow-text==2.20.1 tensorflow-hub \
                      tensorflow-model-optimization
    huggingface   pip install torch==2.13.0 transformers==4.35.2 'numpy<2'

Each implementation trains in rounds of a few seconds while the others wait, so that a slow period of the machine
affects all alike. One JSON line has the medians, their ratios, and the machine's matmul peaks measured in the same
rounds.
"""

import functools
import os
import statistics
import sys

import peers
import side_by_side

N, D, H, D_HEAD, D_INNER, V, B, T, M = 6, 512, 8, 64, 2048, 204, 8, 128, 128
DROPOUT = 0.1
STEPS_PER_ROUND = 6

SIZES = {"n_layer": N, "d_model": D, "d_embed": D, "n_head": H, "d_head": D_HEAD, "d_inner": D_INNER}


def step_flops():
    """Multiplications and additions of one step's matmuls."""
    from txl_tf.models.transformer_xl.config import TransformerXLConfig
    from txl_tf.models.transformer_xl.flops import training_flops

    return training_flops(TransformerXLConfig(vocab_size=V, mem_len=M, **SIZES), B, T)


def ours(dtype="float32"):
    import tensorflow as tf

    from txl_tf import distribute
    from txl_tf.config import CausalLMConfig, TrainConfig
    from txl_tf.models.transformer_xl.config import TransformerXLConfig
    from txl_tf.models.transformer_xl.model import TransformerXL
    from txl_tf.objectives.causal_lm import CausalLM
    from txl_tf.training.optimizer import make_optimizer
    from txl_tf.training.step import Sums, make_host_loop

    strategy, train = distribute.make_strategy("one_device"), TrainConfig()
    with strategy.scope():
        model = TransformerXL(TransformerXLConfig(vocab_size=V, mem_len=M, dropout=DROPOUT, dtype=dtype, **SIZES))
        optimizer = make_optimizer(train, model.trainable_variables)
    tokens = tf.random.uniform([B, T], maxval=V, dtype=tf.int32)
    iterator = iter(tf.data.Dataset.from_tensors((tokens, tokens)).repeat())
    objective = CausalLM(model, CausalLMConfig())
    loop = make_host_loop(strategy, objective, optimizer, train, compute_dtype=model.compute_dtype)
    mems = distribute.initial_state(strategy, objective.initial_state, B)

    def run(steps):
        nonlocal mems
        mems, sums, _ = loop(iterator, mems, Sums().stacked(), tf.constant(steps))
        sums.numpy()

    return run


def matmul(dtype="float32"):
    """The machine's matmul peak: a 'step' has the FLOPs of a training step."""
    import tensorflow as tf

    a, b = (tf.cast(tf.random.normal([2048, 2048]), dtype) for _ in range(2))
    product = tf.function(lambda: tf.reduce_sum(a @ b))

    def run(steps):
        for _ in range(round(steps * step_flops() / (2 * 2048**3))):
            product().numpy()

    return run


def huggingface():
    import torch
    from transformers import TransfoXLConfig, TransfoXLLMHeadModel

    torch.set_num_threads(os.cpu_count())
    config = TransfoXLConfig(
        vocab_size=V, cutoffs=[], div_val=1, adaptive=True, mem_len=M, clamp_len=-1, dropout=DROPOUT, dropatt=0, **SIZES
    )
    model = TransfoXLLMHeadModel(config).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=2.5e-4)
    tokens, mems = torch.randint(0, V, [B, T]), None

    def run(steps):
        nonlocal mems
        for _ in range(steps):
            output = model(tokens, mems=mems, labels=tokens)
            mems = output.mems
            optimizer.zero_grad()
            output.loss.mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()

    return run


def tf_models():
    stack = peers.tf_models_stack(V, N, D, H, D_HEAD, D_INNER, M, dropout=DROPOUT, tie_attention_biases=True)
    import tensorflow as tf
    import tf_keras

    embedding = tf.Variable(tf.random.normal([V, D], stddev=0.02))
    bias = tf.Variable(tf.zeros([V]))
    optimizer = tf_keras.optimizers.Adam(2.5e-4)
    tokens = tf.random.uniform([B, T], maxval=V, dtype=tf.int32)
    positions, mask = peers.tf_models_inputs(B, T, M, D)
    state = [tf.zeros([B, M, D]) for _ in range(N)]

    @tf.function
    def step(tokens, state):
        with tf.GradientTape() as tape:
            hidden = tf.nn.dropout(tf.gather(embedding, tokens) * D**0.5, DROPOUT)
            hidden, new_state = stack(
                content_stream=hidden,
                relative_position_encoding=positions,
                state=list(state),
                content_attention_mask=mask,
                training=True,
            )
            logits = tf.matmul(hidden, embedding, transpose_b=True) + bias
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tokens, logits))
        variables = [*stack.trainable_variables, embedding, bias]
        pairs = zip(tape.gradient(loss, variables), variables, strict=True)  # the segment bias has no gradient here
        pairs = [(tf.convert_to_tensor(gradient), variable) for gradient, variable in pairs if gradient is not None]
        gradients, _ = tf.clip_by_global_norm([gradient for gradient, _ in pairs], 0.25)
        optimizer.apply_gradients(zip(gradients, [variable for _, variable in pairs], strict=True))
        return loss, new_state

    def run(steps):
        nonlocal state
        for _ in range(steps):
            loss, state = step(tokens, state)
        loss.numpy()

    return run


def in_rounds(make):
    """The task of an implementation, as `side_by_side` takes it: a round of steps."""

    def tasks():
        run = make()
        return {"train": lambda: run(STEPS_PER_ROUND)}

    return tasks


def report(measured):
    """The JSON line of what `side_by_side.measure` returns."""
    median = {
        name: statistics.median(one["seconds"] for one in rounds) / STEPS_PER_ROUND
        for name, rounds in measured["train"].items()
    }
    matmul = {name: median.pop(name) for name in ("matmul", "matmul_bfloat16")}
    share = {
        name: matmul["matmul_bfloat16" if name.endswith("_bfloat16") else "matmul"] / value
        for name, value in median.items()
    }
    return {
        "tokens_per_sec": {name: round(B * T / value) for name, value in median.items()},
        "ours_over": {name: round(value / median["ours"], 2) for name, value in median.items()},
        "ours_bfloat16_over": {name: round(value / median["ours_bfloat16"], 2) for name, value in median.items()},
        "matmul_gflops": {name: round(step_flops() / value / 1e9) for name, value in matmul.items()},
        "share_of_matmul": {name: round(value, 3) for name, value in share.items()},
    }


if __name__ == "__main__":
    own = {"ours": ours, "ours_bfloat16": functools.partial(ours, "mixed_bfloat16")}
    own |= {"matmul": matmul, "matmul_bfloat16": functools.partial(matmul, "bfloat16")}
    others = {"huggingface": huggingface, "tf_models": tf_models}
    own, others = ({name: in_rounds(make) for name, make in group.items()} for group in (own, others))
    sys.exit(side_by_side.run(__doc__, own, others, report))
