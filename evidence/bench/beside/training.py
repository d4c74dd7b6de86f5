"""The common parts of the training benchmarks. Not a script.

Nothing is imported before it is called, since peers run in environments of their own.
"""

import functools
import statistics

from beside import side_by_side

STEPS_PER_ROUND = 6
RATE = 2.5e-4  # of the peers' Adam; ours has the same by default


def run(doc, ours, peers, step_flops, tokens, named):
    """Runs a benchmark of training from the command line.

    Args:
        doc: the script's docstring.
        ours: function of a Keras dtype policy that returns a function of n, which trains n steps.
        peers: {name: function that returns a function of n, which trains n steps}, as for `side_by_side.run`.
        step_flops: function that returns the multiplications and additions of one step's matmuls.
        tokens: of a step.
        named: the sizes of `sizes.chosen`.
    """
    own = {"ours": ours, "ours_bfloat16": functools.partial(ours, "mixed_bfloat16")}
    own |= {name: functools.partial(matmul, dtype, step_flops) for name, dtype in PEAKS.items()}
    own, peers = ({name: in_rounds(make) for name, make in group.items()} for group in (own, peers))
    return side_by_side.run(doc, own, peers, functools.partial(report, step_flops, tokens), named)


PEAKS = {"matmul": "float32", "matmul_bfloat16": "bfloat16"}
"""Names and dtypes of the matmul peaks that are measured in the same rounds."""


def steps_of(benchmark):
    """The task of a benchmark, and the steps of its rounds."""
    if benchmark != "inference.py":
        return "train", STEPS_PER_ROUND
    from beside import inference_model
    from txl_tf.ops import scores

    return "evaluate", inference_model.SEGMENTS // scores.segments_in_a_block(inference_model.T)


def in_rounds(make):
    """The task of an implementation, as `side_by_side` takes it: a round of steps."""

    def tasks():
        run = make()
        return {"train": lambda: run(STEPS_PER_ROUND)}

    return tasks


def our_steps(objective, train, batch):
    """A function of n, which trains n steps with this repository's host loop.

    Args:
        objective: function that returns an Objective with a new model.
        train: a TrainConfig.
        batch: the nest of tensors [B, ..] that every step reads.
    """
    import tensorflow as tf

    from txl_tf.devices.distribute import make_strategy
    from txl_tf.training.setup import TrainingSetup
    from txl_tf.training.step import Sums

    class Repeated:
        def batches(self, step, **hosts):
            return tf.data.Dataset.from_tensors(batch).repeat()

    batch_size = tf.nest.flatten(batch)[0].shape[0]
    begun = TrainingSetup(train, objective, Repeated(), batch_size, make_strategy("one_device"))
    state, iterator, loop = begun.initial_state(), begun.batches(0), begun.host_loop()

    def run(steps):
        nonlocal state
        state, sums, _ = loop(iterator, state, Sums().stacked(), tf.constant(steps))
        sums.numpy()

    return run


def matmul(dtype, step_flops):
    """The machine's matmul peak: a 'step' has the FLOPs of a training step."""
    import tensorflow as tf

    a, b = (tf.cast(tf.random.normal([2048, 2048]), dtype) for _ in range(2))
    product = tf.function(lambda: tf.reduce_sum(a @ b))

    def run(steps):
        for _ in range(round(steps * step_flops() / (2 * 2048**3))):
            product().numpy()

    return run


def torch_device():
    """torch's GPU, with products in TF32 as in TensorFlow, or the CPU."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    return "cuda" if torch.cuda.is_available() else "cpu"


def torch_steps(model, clip, loss):
    """A function of n, which trains n steps of a torch model with Adam and clipping by the global norm.

    Args:
        model: a torch module.
        clip: the largest global norm.
        loss: function of the module, which runs it on a batch and returns the loss.
    """
    import torch

    torch.set_num_threads(side_by_side.cores())
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)

    def run(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            loss(model).backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
        norm.item()  # waits for a GPU; its last update is not waited for

    return run


def huggingface_steps(config, batch_size, tgt_len, clip, device="cpu"):
    """A function of n, which trains Hugging Face's TransfoXL n steps, each with the memory of the one before.

    Args:
        config: arguments of its TransfoXLConfig, except those that make the vocabulary one part.
        batch_size, tgt_len: B and T.
        clip: as for `torch_steps`.
        device: of torch.
    """
    import torch
    from transformers import TransfoXLConfig, TransfoXLLMHeadModel

    config = TransfoXLConfig(cutoffs=[], div_val=1, adaptive=True, clamp_len=-1, dropatt=0, **config)
    tokens, mems = torch.randint(0, config.vocab_size, [batch_size, tgt_len], device=device), None

    def loss(model):
        nonlocal mems
        output = model(tokens, mems=mems, labels=tokens)
        mems = output.mems
        return output.loss.mean()

    return torch_steps(TransfoXLLMHeadModel(config).to(device), clip, loss)


def tf_keras_steps(loss, variables, clip, state):
    """A function of n, which trains n steps with tf_keras' Adam and clipping by the global norm.

    Args:
        loss: function of the state, which returns the loss on a batch and the new state.
        variables: function that returns the trainable variables, once `loss` was called. Those without a gradient are
            left out.
        clip: the largest global norm.
        state: a nest of tensors, before the first step.
    """
    import tensorflow as tf
    import tf_keras

    optimizer = tf_keras.optimizers.Adam(RATE)

    @tf.function
    def step(state):
        with tf.GradientTape() as tape:
            value, new_state = loss(state)
        pairs = zip(tape.gradient(value, variables()), variables(), strict=True)
        pairs = [(tf.convert_to_tensor(gradient), variable) for gradient, variable in pairs if gradient is not None]
        gradients, _ = tf.clip_by_global_norm([gradient for gradient, _ in pairs], clip)
        optimizer.apply_gradients(zip(gradients, [variable for _, variable in pairs], strict=True))
        return value, new_state

    def run(steps):
        nonlocal state
        for _ in range(steps):
            value, state = step(state)
        value.numpy()

    return run


def report(step_flops, tokens, measured):
    """The JSON line of the results of `side_by_side.measure`."""
    rounds = dict(measured["train"])
    peak = {name: median_seconds(rounds.pop(name)) for name in PEAKS}
    of_peak = {
        name: peak["matmul_bfloat16" if name.endswith("_bfloat16") else "matmul"] / median_seconds(taken)
        for name, taken in rounds.items()
    }
    flops = STEPS_PER_ROUND * step_flops()
    return speeds(rounds, STEPS_PER_ROUND * tokens) | {
        "matmul_gflops": {name: round(flops / value / 1e9) for name, value in peak.items()},
        "share_of_matmul": {name: round(value, 3) for name, value in of_peak.items()},
    }


def speeds(rounds, tokens):
    """Tokens per second and ratios of {name: list of rounds}, each round with this many tokens."""
    seconds = {name: median_seconds(taken) for name, taken in rounds.items()}
    return {
        "tokens_per_sec": {name: round(tokens / value) for name, value in seconds.items()},
        "ours_over": {name: round(value / seconds["ours"], 2) for name, value in seconds.items()},
        "ours_bfloat16_over": {name: round(value / seconds["ours_bfloat16"], 2) for name, value in seconds.items()},
    }


def median_seconds(rounds):
    return statistics.median(one["seconds"] for one in rounds)
