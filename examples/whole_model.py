r"""The whole Transformer-XL in one file: plain TensorFlow, without txl_tf. To read, and to try changes on.

    python examples/whole_model.py --text=FILE                    # trains a small model on FILE, then writes a text
    python examples/whole_model.py --text=FILE --model_dir=RUN    # takes the weights of a run: loss of FILE, and a text

The equations, after Dai et al. 2019 (arXiv 1901.02860, sections 3.2 and 3.3, appendix B); comments name their numbers.
h [T, D] are a layer's inputs, m [M, D] its memory: what the same layer had as inputs for the M tokens before.

    (1)  c = [SG(m) ; h]                                     context: no gradient flows into the memory
    (2)  q = h W_q;  k = c W_k;  v = c W_v                   queries of the segment; keys and values of the context
    (3)  R_d = [sin(d w_i) ; cos(d w_i)],  w_i = 10000^(-2i/D)      the position of a key at distance d
    (4)  A_ij = (q_i + u) . k_j + (q_i + v) . (W_r R_d),  d = M + i - j    terms a, c and b, d of section 3.3
    (5)  a = softmax_j(A_ij / sqrt(d_head)) v_j              over the keys j that query i may see
    (6)  o = LayerNorm(h + a W_o)
    (7)  h' = LayerNorm(o + relu(o W_1 + b_1) W_2 + b_2)     the inputs of the next layer
    (8)  m' = the newest M rows of [m ; h]
    (9)  P(w) = P_head(w) for frequent words w, P_head(cluster) P_cluster(w) for the others
    (10) loss = the mean of -log P(x_(t+1) | x_1 .. x_t)

It computes what txl_tf computes with its usual settings, without dropout and clamp_len. It is slower: it keeps no keys.
"""

import argparse
import functools
import json
import math
import pathlib
import re

import numpy as np
import tensorflow as tf

SMALL = {"n_layer": 4, "d_model": 128, "n_head": 2, "d_head": 64, "d_inner": 512, "mem_len": 128}
"""The sizes of the model that is trained here: those of the preset demo, for bytes."""


def new_weights(vocab_size, n_layer, d_model, n_head, d_head, d_inner, std=0.02, **_):
    """Initial weights by name, as a run of txl_tf names them."""
    shapes = {"content_bias": [n_head, d_head], "position_bias": [n_head, d_head]}  # u and v, shared by the layers
    shapes |= {"embedding/table_0": [vocab_size, d_model], "softmax/bias_0": [vocab_size]}
    for i in range(n_layer):
        attention, forward = f"layer_{i}/attention", f"layer_{i}/feed_forward"
        for name in ("query", "key", "value", "position"):
            shapes[f"{attention}/{name}_kernel"] = [d_model, n_head, d_head]
        shapes[f"{attention}/output_kernel"] = [n_head, d_head, d_model]
        shapes |= {f"{forward}/inner/kernel": [d_model, d_inner], f"{forward}/inner/bias": [d_inner]}
        shapes |= {f"{forward}/outer/kernel": [d_inner, d_model], f"{forward}/outer/bias": [d_model]}
        for norm in (f"{attention}_norm", f"{forward}_norm"):
            shapes |= {f"{norm}/gamma": [d_model], f"{norm}/beta": [d_model]}
    made = {}
    for name, shape in shapes.items():
        if name.endswith("gamma"):
            made[name] = tf.ones(shape)
        elif name.endswith(("bias_0", "beta", "inner/bias", "outer/bias")):
            made[name] = tf.zeros(shape)
        else:
            made[name] = tf.random.normal(shape, stddev=std)
    return {name: tf.Variable(value) for name, value in made.items()}


# The network.


def positions(k_len, d_model):
    """(3): R for the distances K-1, .., 0, [K, D]. In float64: large angles need its digits."""
    frequencies = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    angles = np.arange(k_len - 1, -1, -1.0)[:, None] * frequencies
    return tf.constant(np.concatenate([np.sin(angles), np.cos(angles)], 1), tf.float32)


def relative_shift(x):
    """[.., T, K] by distance K-1, .., 0 -> [.., T, K] by key (appendix B).

    Row i must move left by T-1-i. With a zero before each row, without the first T numbers, and read in rows of K, each
    row moves by one more than the row below it. The numbers that come in at the right are in a query's future.
    """
    *outer, t_len, k_len = x.shape
    x = tf.reshape(tf.pad(x, [[0, 0]] * len(outer) + [[0, 0], [1, 0]]), [*outer, k_len + 1, t_len])
    return tf.reshape(x[..., 1:, :], [*outer, t_len, k_len])


def visible(t_len, m_len, window):
    """Which of the M + T keys each of the T queries sees: all before it, or the newest `window` of them."""
    distance = m_len + np.arange(t_len)[:, None] - np.arange(m_len + t_len)
    return tf.constant((distance >= 0) & (distance < (window or math.inf)))


def attention(weights, name, hidden, memory, mask):
    """(1) to (5) and the projection W_o of (6): [B, T, D]."""
    query_kernel = weights[f"{name}/query_kernel"]
    context = tf.concat([tf.stop_gradient(memory), hidden], 1)  # (1)
    query = tf.einsum("btd,dhe->bhte", hidden, query_kernel)  # (2)
    key = tf.einsum("bkd,dhe->bhke", context, weights[f"{name}/key_kernel"])
    value = tf.einsum("bkd,dhe->bhke", context, weights[f"{name}/value_kernel"])
    encoding = positions(context.shape[1], hidden.shape[-1])
    position = tf.einsum("kd,dhe->hke", encoding, weights[f"{name}/position_kernel"])  # W_r R, once for all queries
    # untie_r: each layer has its own u and v
    u, v = (weights.get(f"{name}/{bias}", weights.get(bias)) for bias in ("content_bias", "position_bias"))
    content = tf.einsum("bhte,bhke->bhtk", query + u[:, None], key)  # (4): a and c
    by_distance = tf.einsum("bhte,hke->bhtk", query + v[:, None], position)  # b and d
    scores = (content + relative_shift(by_distance)) / query_kernel.shape[-1] ** 0.5
    probabilities = tf.nn.softmax(tf.where(mask, scores, -1e30))  # (5)
    heads = tf.einsum("bhtk,bhke->bhte", probabilities, value)
    return tf.einsum("bhte,hed->btd", heads, weights[f"{name}/output_kernel"])


def layer_norm(weights, name, x, epsilon):
    """Mean 0 and variance 1 over the features, then gamma and beta."""
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + epsilon) * weights[f"{name}/gamma"] + weights[f"{name}/beta"]


def layer(weights, i, hidden, memory, mask, epsilon):
    """One layer: [B, T, D]."""
    name = f"layer_{i}"
    attended = attention(weights, f"{name}/attention", hidden, memory, mask)
    hidden = layer_norm(weights, f"{name}/attention_norm", hidden + attended, epsilon)  # (6)
    kernel, bias = (weights[f"{name}/feed_forward/inner/{part}"] for part in ("kernel", "bias"))
    inner = tf.nn.relu(hidden @ kernel + bias)
    kernel, bias = (weights[f"{name}/feed_forward/outer/{part}"] for part in ("kernel", "bias"))
    return layer_norm(weights, f"{name}/feed_forward_norm", hidden + inner @ kernel + bias, epsilon)  # (7)


def tables(weights, cutoffs):
    """The embedding's table of each cluster of words: one after another, or parts of a single table."""
    if "embedding/table_1" in weights:
        return [weights[f"embedding/table_{i}"] for i in range(len(cutoffs) + 1)]
    table = weights["embedding/table_0"]
    return [table[a:b] for a, b in zip((0, *cutoffs), (*cutoffs, table.shape[0]), strict=True)]


def embed(weights, tokens, cutoffs, d_model):
    """The first layer's inputs [B, T, D]. Rare words have narrower rows, which a projection makes wide."""
    out = 0.0
    for i, (start, table) in enumerate(zip((0, *cutoffs), tables(weights, cutoffs), strict=True)):
        own = (tokens >= start) & (tokens < start + table.shape[0])
        rows = tf.where(own[..., None], tf.gather(table, tf.where(own, tokens - start, 0)), 0.0)
        projection = weights.get(f"embedding/projection_{i if 'embedding/table_1' in weights else 0}")
        out += rows if projection is None else rows @ projection
    return out * d_model**0.5


def log_probabilities(weights, hidden, cutoffs):
    """(9): log P of all words, [.., V]. The tables are the embedding's."""
    logits = []
    for i, table in enumerate(tables(weights, cutoffs)):
        projection = weights.get(f"softmax/projection_{i}" if cutoffs else "embedding/projection_0")
        narrow = hidden if projection is None else tf.matmul(hidden, projection, transpose_b=True)
        if i == 0 and cutoffs:  # the head also chooses among the clusters
            table = tf.concat([table, weights["softmax/cluster_table"]], 0)
            bias = tf.concat([weights["softmax/bias_0"], weights["softmax/cluster_bias"]], 0)
        else:
            bias = weights[f"softmax/bias_{i}"]
        logits.append(tf.nn.log_softmax(tf.matmul(narrow, table, transpose_b=True) + bias))
    head, *tails = logits
    first = cutoffs[0] if cutoffs else head.shape[-1]
    chosen = [head[..., first + i, None] + tail for i, tail in enumerate(tails)]
    return tf.concat([head[..., :first], *chosen], -1)


def new_memory(config, rows):
    """The memory before any text: zeros [B, M, D] for each layer."""
    return [tf.zeros([rows, config["mem_len"], config["d_model"]])] * config["n_layer"]


def read(weights, config, tokens, memory):
    """Reads a segment, int32 [B, T]: log P of each next token [B, T, V], and the new memory."""
    cutoffs, m_len = tuple(config.get("cutoffs", ())), config["mem_len"]
    mask = visible(tokens.shape[1], m_len, m_len + 1 if config.get("same_length") else None)
    hidden, kept = embed(weights, tokens, cutoffs, config["d_model"]), []
    for i in range(config["n_layer"]):
        kept.append(tf.concat([memory[i], hidden], 1)[:, tokens.shape[1] :])  # (8)
        hidden = layer(weights, i, hidden, memory[i], mask, config.get("layer_norm_epsilon", 1e-5))
    return log_probabilities(weights, hidden, cutoffs), kept


def nll(log_probs, targets):
    """(10): -log P of each target [B, T], in nats."""
    return -tf.gather(log_probs, targets, axis=-1, batch_dims=2)


# Training, evaluation, sampling, runs of txl_tf.


def train(ids, config, steps, rows=16, t_len=128, peak=3e-3, warmup=60, clip=0.25, seed=1):
    """The weights after `steps` updates by Adam on a text, int32 [n].

    The text is cut into `rows` parts, which are read side by side from segment to segment, so that each segment finds
    its memory. At the end they begin again.
    """
    tf.random.set_seed(seed)
    weights = new_weights(**config)
    variables = list(weights.values())
    moments = [(tf.Variable(tf.zeros_like(w)), tf.Variable(tf.zeros_like(w))) for w in variables]
    lanes = len(ids) // rows
    lanes_ids = ids[: lanes * rows].reshape(rows, lanes)

    @tf.function
    def update(inputs, targets, memory, step):
        with tf.GradientTape() as tape:
            log_probs, memory = read(weights, config, inputs, memory)
            loss = tf.reduce_mean(nll(log_probs, targets))
        gradients, _ = tf.clip_by_global_norm([tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)], clip)
        progress = (step - warmup) / tf.maximum(float(steps - warmup), 1.0)
        rate = peak * tf.minimum(step / warmup, 0.5 * (1 + tf.cos(math.pi * tf.clip_by_value(progress, 0.0, 1.0))))
        for weight, (first, second), gradient in zip(variables, moments, gradients, strict=True):
            first.assign(0.9 * first + 0.1 * gradient)
            second.assign(0.999 * second + 0.001 * gradient**2)
            root = tf.sqrt(second / (1 - 0.999 ** (step + 1))) + 1e-8
            weight.assign_sub(rate * first / (1 - 0.9 ** (step + 1)) / root)
        return loss, memory

    segments, memory = (lanes - 1) // t_len, new_memory(config, rows)
    for step in range(steps):
        at = step % segments * t_len
        inputs, targets = (tf.constant(lanes_ids[:, at + i : at + i + t_len]) for i in (0, 1))
        loss, memory = update(inputs, targets, memory, tf.constant(float(step)))
        if step % 50 == 49:
            print(f"step {step + 1}: {loss:.3f} nats")
    return weights


def evaluate(weights, config, ids, t_len=128):
    """(10) for a text, int32 [n]: the mean over its tokens but the first, in nats."""
    reading, memory, total = tf.function(lambda x, m: read(weights, config, x, m)), new_memory(config, 1), 0.0
    for at in range(0, len(ids) - 1, t_len):
        inputs, targets = ids[None, at : at + t_len], ids[None, at + 1 : at + t_len + 1]
        log_probs, memory = reading(tf.constant(inputs[:, : targets.shape[1]]), memory)
        total += float(tf.reduce_sum(nll(log_probs, tf.constant(targets))))
    return total / (len(ids) - 1)


def sample(weights, config, prompt, tokens, temperature=0.8, seed=0):
    """`tokens` more ids after those of a prompt; temperature 0: always the most likely."""
    reading, memory = tf.function(lambda x, m: read(weights, config, x, m)), new_memory(config, 1)
    made, rng = list(prompt), np.random.default_rng(seed)
    for at in range(len(prompt) + tokens - 1):
        log_probs, memory = reading(tf.constant([[made[at]]], tf.int32), memory)
        if at == len(made) - 1:
            found = log_probs[0, 0].numpy().astype(np.float64)
            noise = rng.gumbel(size=len(found)) * temperature  # the largest of log P / temperature + noise is a draw
            made.append(int(np.argmax(found + noise)))
    return made[len(prompt) :]


def read_run(model_dir):
    """The settings of a run's evaluation, and the weights of its newest checkpoint."""
    folder = pathlib.Path(model_dir)
    settings = json.loads((folder / "config.json").read_text())
    evaluated = ("mem_len", "same_length", "clamp_len", "ext_len")
    config = settings["model"] | {name: settings["eval"][name] for name in evaluated}
    known = {"attn_type": "transformer_xl", "pre_lnorm": False, "activation": "relu", "tie_weight": True}
    known |= {"mem_init": "zeros", "same_length_window": "tf", "clamp_len": -1, "ext_len": 0, "tied_positions": False}
    other = [name for name, value in known.items() if config.get(name, value) != value]
    if other or (folder / "vocab.txt").exists():
        raise SystemExit(f"error: {model_dir} has vocab.txt, or settings that this program does not know: {other}")
    newest = max(folder.glob("ckpt-*.index"), key=lambda path: int(re.findall(r"\d+", path.stem)[-1]))
    reader = tf.train.load_checkpoint(str(newest.with_suffix("")))
    weights = {}
    for key in reader.get_variable_to_shape_map():
        if match := re.fullmatch(r"model/transformer_xl\.S(.*)/\.ATTRIBUTES/VARIABLE_VALUE", key):
            weights[match[1].replace(".S", "/")] = tf.constant(reader.get_tensor(key))
    return config, weights


def tokenizer(model_dir):
    """Functions text -> ids and ids -> text: bytes, or the subwords of a run."""
    if not model_dir or not (path := pathlib.Path(model_dir, "sentencepiece.model")).exists():
        encode = functools.partial(np.frombuffer, dtype=np.uint8)
        return lambda text: encode(text.encode()).astype(np.int32), lambda ids: bytes(ids).decode("utf-8", "replace")
    import tensorflow_text

    pieces = tensorflow_text.SentencepieceTokenizer(path.read_bytes())
    return (
        lambda text: pieces.tokenize(text.splitlines(keepends=True)).flat_values.numpy(),
        lambda ids: pieces.detokenize(tf.constant(ids, tf.int32)).numpy().decode("utf-8", "replace"),
    )


def main():
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="a text in UTF-8")
    parser.add_argument("--model_dir", help="a run of txl_tf with all 256 bytes, or subwords")
    parser.add_argument("--steps", type=int, default=500, help="updates, without --model_dir [500]")
    parser.add_argument("--prompt", default="The ", help="what to continue")
    args = parser.parse_args()
    encode, decode = tokenizer(args.model_dir)
    ids = encode(pathlib.Path(args.text).read_text("utf-8"))
    if args.model_dir:
        config, weights = read_run(args.model_dir)
    else:
        config = SMALL | {"vocab_size": 256}
        weights = train(ids, config, args.steps)
    print(f"loss: {evaluate(weights, config, ids[:20_000]):.4f} nats for a token")
    print(args.prompt + decode(sample(weights, config, encode(args.prompt), 200)))


if __name__ == "__main__":
    main()
