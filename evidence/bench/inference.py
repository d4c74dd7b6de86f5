r"""Measures the speed of evaluation and generation beside other implementations, in alternating rounds.

    python evidence/bench/inference.py --peer=tf_models=PYTHON --peer=huggingface=PYTHON

The workload, in one of the sizes below: float32, the same weights everywhere; generation has one text and takes the
most likely token. Every round of evaluation reads the same text, starting with an empty memory, and all must get the
same loss. `ours_bfloat16` is mixed bfloat16. XLA compiles both; `ours_without_xla` and `ours_bfloat16_without_xla`
evaluate with TensorFlow's own kernels (`evaluate.py --nojit_compile`).

train.py tells how to create the environments of the peers; --peer gives the Python of each.

One JSON line has for each task: tokens per second of wall-clock time and of processor time in user mode (medians), the
ratio to each peer, and the results of all, for comparison. `share_of_limit` is the fraction of a measured limit: in
evaluation the float32 matmul peak, in generation the memory bandwidth (bytes of weights and cache that a token needs,
against the bytes that matrix-vector products read per second). `flat` is the median time of a token among the last
thousand of 10,000, divided by that among the first thousand.
"""

import functools
import statistics
import sys
import time

from beside import peers, side_by_side
from beside.inference_model import (
    D_HEAD,
    D_INNER,
    NAMED,
    SEGMENT_FLOPS,
    SEGMENTS,
    STREAMED_TOKENS,
    B,
    D,
    H,
    M,
    N,
    T,
    V,
    limit,
    our_model,
    token_bytes,
    weights,
)

NEW_TOKENS = {"ours": 128, "ours_bfloat16": 128, "limit": STREAMED_TOKENS, "huggingface": 16, "tf_models": 16}
"""Per round."""
LONG_CHUNKS = 20  # chunks of 64 tokens per round; at least 10,000 tokens in all rounds


def text(length=T):
    """A text, int32 [.., B, length + 1]: a row's inputs are all numbers but the last, its targets all but the first."""
    import numpy as np

    lanes = np.random.default_rng(1).integers(0, V, [B, SEGMENTS * T + 1], dtype=np.int32)
    return np.stack([lanes[:, i : i + length + 1] for i in range(0, SEGMENTS * T, length)])


def ours(dtype="float32", compiled=True):
    """The tasks of txl_tf; compiled: whether XLA compiles evaluation."""
    import tensorflow as tf

    from txl_tf.devices import distribute
    from txl_tf.inference.causal.draw_token import Choice
    from txl_tf.inference.evaluate import make_score_steps
    from txl_tf.inference.generation.generator import CHUNK, Generator
    from txl_tf.models.transformer_xl.config import EvalConfig, Reach, TransformerXLRunConfig
    from txl_tf.objectives.causal_lm import CausalScorer, segments_at_once

    model, reach, strategy = our_model(dtype), Reach(M), distribute.make_strategy("one_device")
    config = TransformerXLRunConfig(model.config, eval=EvalConfig(tgt_len=T))
    at_once = segments_at_once(config)
    scorer = CausalScorer(model, config.eval, reach, segments=at_once)
    score_steps = make_score_steps(strategy, scorer, compiled)
    segments = text(at_once * T)
    pairs = tf.data.Dataset.from_tensor_slices((segments[:, :, :-1], segments[:, :, 1:])).cache().repeat()
    iterator = iter(distribute.distribute_batches(strategy, lambda **hosts: pairs))
    generator = Generator(model, reach)
    choice = Choice.of([0], temperature=0.0)
    given = tf.fill([1, CHUNK], -1)
    start = generator.begin(1)

    def evaluate():
        _, nll, *_ = score_steps(iterator, scorer.initial_state(B), tf.constant(len(segments)))
        return float(nll.mean(dtype="float64"))

    def generate():
        draft, made = start, []
        for _ in range(NEW_TOKENS["ours"] // CHUNK):
            ids, draft = generator.decode(draft, given, tf.constant(CHUNK), choice)
            made.extend(ids.numpy()[0].tolist())
        return made

    written, seconds = start, []

    def write_on():
        """Continues one long text; returns the seconds of each chunk so far."""
        nonlocal written
        for _ in range(LONG_CHUNKS):
            begun = time.perf_counter()
            ids, written = generator.decode(written, given, tf.constant(CHUNK), choice)
            ids.numpy()
            seconds.append(time.perf_counter() - begun)
        return seconds

    return {"evaluate": evaluate, "generate": generate, "long": write_on}


def ours_bfloat16():
    tasks = ours("mixed_bfloat16")
    return {"evaluate": tasks["evaluate"], "generate": tasks["generate"]}


def ours_without_xla():
    return {"evaluate": ours(compiled=False)["evaluate"]}


def ours_bfloat16_without_xla():
    return {"evaluate": ours("mixed_bfloat16", compiled=False)["evaluate"]}


def huggingface():
    import torch
    from transformers import TransfoXLConfig, TransfoXLLMHeadModel

    torch.set_num_threads(side_by_side.cores())
    torch.set_grad_enabled(False)
    config = TransfoXLConfig(
        vocab_size=V,
        cutoffs=[],
        div_val=1,
        d_model=D,
        d_embed=D,
        n_head=H,
        d_head=D_HEAD,
        d_inner=D_INNER,
        n_layer=N,
        mem_len=M,
        same_length=False,
        clamp_len=-1,
        untie_r=True,
    )
    model = TransfoXLLMHeadModel(config).eval()
    embedding, bias, layers = weights()
    given = {"transformer.word_emb.emb_layers.0.weight": embedding, "crit.out_layers.0.bias": bias}
    for i, layer in enumerate(layers):
        flat = {name: layer[name].reshape(D, -1).T for name in ("query", "key", "value", "position")}
        attention, core = f"transformer.layers.{i}.dec_attn.", f"transformer.layers.{i}.pos_ff."
        given |= {
            attention + "qkv_net.weight": [*flat["query"], *flat["key"], *flat["value"]],
            attention + "r_net.weight": flat["position"],
            attention + "o_net.weight": layer["output"].reshape(-1, D).T,
            attention + "r_w_bias": layer["content_bias"],
            attention + "r_r_bias": layer["position_bias"],
            attention + "layer_norm.weight": layer["attention_gamma"],
            attention + "layer_norm.bias": layer["attention_beta"],
            core + "CoreNet.0.weight": layer["inner"].T,
            core + "CoreNet.0.bias": layer["inner_bias"],
            core + "CoreNet.3.weight": layer["outer"].T,
            core + "CoreNet.3.bias": layer["outer_bias"],
            core + "layer_norm.weight": layer["feed_forward_gamma"],
            core + "layer_norm.bias": layer["feed_forward_beta"],
        }
    import numpy as np

    for name, parameter in model.named_parameters():
        parameter.copy_(torch.from_numpy(np.array(given[name])))
    segments = torch.from_numpy(text()).long()

    def evaluate():
        total, mems = 0.0, None
        for segment in segments:
            output = model(segment[:, :-1], mems=mems)
            mems = output.mems
            total -= output.prediction_scores.gather(-1, segment[:, 1:, None]).double().mean().item()
        return total / SEGMENTS

    def generate():
        token, mems, made = torch.zeros([1, 1], dtype=torch.long), None, []
        for _ in range(NEW_TOKENS["huggingface"]):
            output = model(token, mems=mems)
            token, mems = output.prediction_scores.argmax(-1), output.mems
            made.append(token.item())
        return made

    return {"evaluate": evaluate, "generate": generate}


def tf_models():
    stack = peers.tf_models_stack(V, N, D, H, D_HEAD, D_INNER, M, dropout=0.0, tie_attention_biases=False)
    import tensorflow as tf

    embedding, bias, layers = weights()

    def initial_state(batch_size):
        return [tf.zeros([batch_size, M, D])] * N

    @functools.partial(tf.function, reduce_retracing=False)
    def log_prob(tokens, state):
        batch_size, t_len = tokens.shape
        positions, mask = peers.tf_models_inputs(batch_size, t_len, M, D)
        hidden, state = stack(
            content_stream=tf.gather(embedding, tokens) * D**0.5,
            relative_position_encoding=positions,
            state=list(state),
            content_attention_mask=mask,
        )
        return tf.nn.log_softmax(tf.matmul(hidden, embedding, transpose_b=True) + bias), state

    @tf.function
    def loss(tokens, targets, state):
        rows, state = log_prob(tokens, state)
        return -tf.reduce_mean(tf.gather(rows, targets, batch_dims=2)), state

    @tf.function
    def following(token, state):
        rows, state = log_prob(token, state)
        return tf.argmax(rows, -1, output_type=tf.int32), state

    log_prob(tf.zeros([1, 1], tf.int32), initial_state(1))
    for i, layer in enumerate(layers):
        block = stack.transformer_xl_layers[i]
        names = ("query", "key", "value", "output", "position", "attention_gamma", "attention_beta")
        names += ("inner", "inner_bias", "outer", "outer_bias", "feed_forward_gamma", "feed_forward_beta")
        block.set_weights([layer[name] for name in names])
    stack.content_attention_bias.assign([layer["content_bias"] for layer in layers])
    stack.positional_attention_bias.assign([layer["position_bias"] for layer in layers])
    segments = tf.constant(text())

    def evaluate():
        total, state = 0.0, initial_state(B)
        for segment in segments:
            mean, state = loss(segment[:, :-1], segment[:, 1:], state)
            total += float(mean)
        return total / SEGMENTS

    def generate():
        token, state, made = tf.zeros([1, 1], tf.int32), initial_state(1), []
        for _ in range(NEW_TOKENS["tf_models"]):
            token, state = following(token, state)
            made.append(int(token[0, 0]))
        return made

    return {"evaluate": evaluate, "generate": generate}


def report(measured):
    """The JSON line of the results of `side_by_side.measure`."""
    line = {}
    for task in ("evaluate", "generate"):
        tokens = {name: SEGMENTS * B * T if task == "evaluate" else NEW_TOKENS[name] for name in measured[task]}
        rates = {
            clock: {
                name: tokens[name] / statistics.median(one[clock] for one in rounds)
                for name, rounds in measured[task].items()
            }
            for clock in ("seconds", "user_seconds")
        }
        ours, peak = (rates["seconds"][name] for name in ("ours", "limit"))
        line[task] = {
            "tokens_per_sec": _rounded(rates["seconds"], 1),
            "tokens_per_user_sec": _rounded(rates["user_seconds"], 1),
            "ours_over": _rounded({name: ours / rate for name, rate in rates["seconds"].items() if name != "limit"}, 2),
            "share_of_limit": round(ours / peak, 3),
            "found": {name: rounds[-1]["result"] for name, rounds in measured[task].items() if name != "limit"},
        }
        line[task]["limit"] = (
            {"matmul_gflops": round(peak / (B * T) * SEGMENT_FLOPS / 1e9)}
            if task == "evaluate"
            else {"gbytes_per_sec": round(peak * token_bytes() / 1e9, 1), "bytes_per_token": token_bytes()}
        )
    found = line["generate"]["found"]
    line["generate"]["found"] = {name: ids[: min(map(len, found.values()))] for name, ids in found.items()}
    chunks = measured["long"]["ours"][-1]["result"]
    thousand = 1000 // 64
    first, last = (statistics.median(part) / 64 for part in (chunks[:thousand], chunks[-thousand:]))
    line["flat"] = {"tokens": len(chunks) * 64, "first_ms": first * 1e3, "last_ms": last * 1e3, "ratio": last / first}
    line["flat"] = _rounded(line["flat"], 3)
    return line


def _rounded(values, digits):
    return {name: round(value, digits) for name, value in values.items()}


if __name__ == "__main__":
    own = {
        function.__name__: function
        for function in (ours, ours_without_xla, ours_bfloat16, ours_bfloat16_without_xla, limit)
    }
    others = {"huggingface": huggingface, "tf_models": tf_models}
    sys.exit(side_by_side.run(__doc__, own, others, report, NAMED))
