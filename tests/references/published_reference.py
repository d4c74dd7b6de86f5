"""The three published codes in plain NumPy and float64, each from its own source and with its own tensors' names.

Nothing here is shared with txl_tf: tensors are made under the published names and shapes, and read as that code reads
them. One lane at a time; hidden [T, D], mems [M, D].
"""

import dataclasses
import itertools

import numpy as np


@dataclasses.dataclass(frozen=True)
class Sizes:
    vocab_size: int = 23
    n_layer: int = 2
    d_model: int = 8
    d_embed: int = 8
    n_head: int = 2
    d_head: int = 3
    d_inner: int = 10
    cutoffs: tuple = ()
    div_val: int = 1
    untie_r: bool = False
    share: bool = False
    proj_same_dim: bool = True
    mem_len: int = 5
    clamp_len: int = 4
    same_length: bool = True

    @property
    def ends(self):
        return [0, *self.cutoffs, self.vocab_size]

    @property
    def clusters(self):
        return [
            (end - start, self.d_embed // self.div_val**i)
            for i, (start, end) in enumerate(itertools.pairwise(self.ends))
        ]


def tf_tensors(s, rng, scale=0.4):
    """The variables of tf/model.py."""
    shapes, width = {}, s.n_head * s.d_head
    bias = [s.n_layer, s.n_head, s.d_head] if s.untie_r else [s.n_head, s.d_head]
    shapes["r_w_bias"] = shapes["r_r_bias"] = bias
    if s.div_val == 1:
        shapes["adaptive_embed/lookup_table"] = [s.vocab_size, s.d_embed]
        if s.d_embed != s.d_model:
            shapes["adaptive_embed/proj_W"] = [s.d_embed, s.d_model]
    else:
        for i, (rows, columns) in enumerate(s.clusters):
            shapes[f"adaptive_embed/cutoff_{i}/lookup_table"] = [rows, columns]
            if columns != s.d_model or s.proj_same_dim:
                shapes[f"adaptive_embed/cutoff_{i}/proj_W"] = [columns, s.d_model]
    if not s.cutoffs:
        shapes["adaptive_softmax/bias"] = [s.vocab_size]
    else:
        shapes["adaptive_softmax/cutoff_0/cluster_W"] = [len(s.cutoffs), s.d_embed]
        shapes["adaptive_softmax/cutoff_0/cluster_b"] = [len(s.cutoffs)]
        for i, (rows, columns) in enumerate(s.clusters):
            shapes[f"adaptive_softmax/cutoff_{i}/b"] = [rows]
            tied = s.share and i > 0
            none = columns == s.d_model and (s.div_val == 1 or not s.proj_same_dim)
            if not tied and not none:
                shapes[f"adaptive_softmax/cutoff_{i}/proj"] = [columns, s.d_model]
    for n in range(s.n_layer):
        layer = f"layer_{n}"
        shapes[f"{layer}/rel_attn/qkv/kernel"] = [s.d_model, 3 * width]
        shapes[f"{layer}/rel_attn/r/kernel"] = [s.d_model, width]
        shapes[f"{layer}/rel_attn/o/kernel"] = [width, s.d_model]
        shapes[f"{layer}/ff/layer_1/kernel"] = [s.d_model, s.d_inner]
        shapes[f"{layer}/ff/layer_1/bias"] = [s.d_inner]
        shapes[f"{layer}/ff/layer_2/kernel"] = [s.d_inner, s.d_model]
        shapes[f"{layer}/ff/layer_2/bias"] = [s.d_model]
        for block, part in itertools.product(("rel_attn", "ff"), ("gamma", "beta")):
            shapes[f"{layer}/{block}/LayerNorm/{part}"] = [s.d_model]
    return {f"transformer/{name}": _random(shape, name, rng, scale) for name, shape in shapes.items()}


def tf_others(weights):
    """The other variables that the official Saver stores."""
    slots = {f"{name}/{slot}": np.zeros_like(w) for name, w in weights.items() for slot in ("Adam", "Adam_1")}
    return slots | {"global_step": np.int64(7), "beta1_power": np.float32(0.9), "beta2_power": np.float32(0.999)}


def torch_tensors(s, rng, hugging_face=False):
    """The state_dict of pytorch/mem_transformer.py's MemTransformerLM, or of Hugging Face's TransfoXLLMHeadModel.

    Tied tensors are the same array.
    """
    prefix, width, found = "transformer." if hugging_face else "", s.n_head * s.d_head, {}

    def make(name, *shape):
        found[name] = _random(shape, name, rng)

    if hugging_face and s.untie_r:
        for n, bias in itertools.product(range(s.n_layer), ("r_w_bias", "r_r_bias")):
            make(f"{prefix}layers.{n}.dec_attn.{bias}", s.n_head, s.d_head)
    else:
        make(f"{prefix}r_w_bias", s.n_head, s.d_head)
        make(f"{prefix}r_r_bias", s.n_head, s.d_head)
        if hugging_face:
            for n, bias in itertools.product(range(s.n_layer), ("r_w_bias", "r_r_bias")):
                found[f"{prefix}layers.{n}.dec_attn.{bias}"] = found[f"{prefix}{bias}"]
    for i, (rows, columns) in enumerate([(s.vocab_size, s.d_embed)] if s.div_val == 1 else s.clusters):
        make(f"{prefix}word_emb.emb_layers.{i}.weight", rows, columns)
        if s.div_val != 1 or s.d_embed != s.d_model:
            make(f"{prefix}word_emb.emb_projs.{i}", s.d_model, columns)
        found[f"crit.out_layers.{i}.weight"] = found[f"{prefix}word_emb.emb_layers.{i}.weight"]
        make(f"crit.out_layers.{i}.bias", rows)
    for i, (_, columns) in enumerate(s.clusters):
        if s.div_val != 1 or s.d_embed != s.d_model:
            make(f"crit.out_projs.{i}", s.d_model, columns)
            if s.share and i > 0:
                found[f"crit.out_projs.{i}"] = found[f"{prefix}word_emb.emb_projs.{0 if s.div_val == 1 else i}"]
    if s.cutoffs:
        make("crit.cluster_weight", len(s.cutoffs), s.d_embed)
        make("crit.cluster_bias", len(s.cutoffs))
    for n in range(s.n_layer):
        attention, feed_forward = f"{prefix}layers.{n}.dec_attn", f"{prefix}layers.{n}.pos_ff"
        make(f"{attention}.qkv_net.weight", 3 * width, s.d_model)
        make(f"{attention}.o_net.weight", s.d_model, width)
        make(f"{attention}.r_net.weight", width, s.d_model)
        make(f"{feed_forward}.CoreNet.0.weight", s.d_inner, s.d_model)
        make(f"{feed_forward}.CoreNet.0.bias", s.d_inner)
        make(f"{feed_forward}.CoreNet.3.weight", s.d_model, s.d_inner)
        make(f"{feed_forward}.CoreNet.3.bias", s.d_model)
        for block, part in itertools.product((attention, feed_forward), ("weight", "bias")):
            make(f"{block}.layer_norm.{part}", s.d_model)
    found[f"{prefix}pos_emb.inv_freq"] = (1 / 10000 ** (np.arange(0, s.d_model, 2) / s.d_model)).astype(np.float32)
    return found


def _random(shape, name, rng, scale=0.4):
    """Large enough for every weight to matter; those of layer norm around one."""
    centre = 1.0 if name.endswith(("gamma", "layer_norm.weight")) else 0.0
    return rng.normal(centre, scale, shape).astype(np.float32)


def tf_log_probs(w, s, segments):
    """tf/model.py: [T, V] for each segment of one lane.

    Zero memory at the start; lookup_table @ proj_W, times sqrt(d_model); heads of the fused kernel; mask of
    `_create_mask`; tf.contrib's layer norm; cluster entry i - 1 for tail i.
    """
    w = {name.removeprefix("transformer/"): np.asarray(array, np.float64) for name, array in w.items()}
    tables = (
        [(0, w["adaptive_embed/lookup_table"], w.get("adaptive_embed/proj_W"))]
        if s.div_val == 1
        else [
            (start, w[f"adaptive_embed/cutoff_{i}/lookup_table"], w.get(f"adaptive_embed/cutoff_{i}/proj_W"))
            for i, start in enumerate(s.ends[:-1])
        ]
    )

    def embed(token):
        start, table, projection = [entry for entry in tables if token >= entry[0]][-1]
        row = table[token - start]
        return (row if projection is None else row @ projection) * s.d_model**0.5

    def mask(q_len, m_len):
        hidden = np.zeros([q_len, m_len + q_len], bool)
        for i in range(q_len):
            hidden[i, m_len + i + 1 :] = True
            if s.same_length:
                hidden[i, :i] = True  # only the first q_len columns are touched, hence mem_len + 1 keys
        return hidden

    def layer(n, hidden, mem, hide):
        at = f"layer_{n}/"
        u, v = (w[name][n] if s.untie_r else w[name] for name in ("r_w_bias", "r_r_bias"))
        kernels = [w[f"{at}rel_attn/{name}/kernel"] for name in ("qkv", "r", "o")]
        attended = _attend(hidden, mem, *kernels, u, v, s, hide)
        norms = [[w[f"{at}{block}/LayerNorm/{part}"] for part in ("gamma", "beta")] for block in ("rel_attn", "ff")]
        hidden = _norm(attended + hidden, *norms[0], 1e-12)
        inner = np.maximum(hidden @ w[f"{at}ff/layer_1/kernel"] + w[f"{at}ff/layer_1/bias"], 0)
        return _norm(inner @ w[f"{at}ff/layer_2/kernel"] + w[f"{at}ff/layer_2/bias"] + hidden, *norms[1], 1e-12)

    def output(hidden):
        parts = []
        for i, (start, end) in enumerate(itertools.pairwise(s.ends)):
            at = f"adaptive_softmax/cutoff_{i}/"
            bias = w[f"{at}b"] if s.cutoffs else w["adaptive_softmax/bias"]
            table, shared = (tables[0][1][start:end], tables[0][2]) if s.div_val == 1 else tables[i][1:]
            projection = shared if not s.cutoffs or (s.share and i > 0) else w.get(f"{at}proj")
            if i == 0 and s.cutoffs:
                table = np.concatenate([table, w[f"{at}cluster_W"]])
                bias = np.concatenate([bias, w[f"{at}cluster_b"]])
            parts.append(_log_softmax((hidden if projection is None else hidden @ projection.T) @ table.T + bias))
        head, *tails = parts
        first = s.ends[1]
        return np.concatenate([head[:, :first], *(head[:, [first + i]] + tail for i, tail in enumerate(tails))], axis=1)

    mems = [np.zeros([s.mem_len, s.d_model]) for _ in range(s.n_layer)]
    return _run(segments, mems, embed, mask, layer, output, s)


def torch_log_probs(w, s, segments, hugging_face=False):
    """mem_transformer.py or modeling_transfo_xl.py: [T, V] for each segment of one lane.

    The former starts without memory and gives tail i the head's entry -i; the latter starts with zeros and gives it
    entry i - 1. Both mask as `_forward` does and add 1e-5 in layer norm.
    """
    w = {name.removeprefix("transformer."): np.asarray(array, np.float64) for name, array in w.items()}

    def embed(token):
        i = 0 if s.div_val == 1 else max(i for i, start in enumerate(s.ends[:-1]) if token >= start)
        row = w[f"word_emb.emb_layers.{i}.weight"][token - (0 if s.div_val == 1 else s.ends[i])]
        projection = w.get(f"word_emb.emb_projs.{i}")
        return (row if projection is None else projection @ row) * s.d_model**0.5

    def mask(q_len, m_len):
        k_len = q_len + m_len
        ones = np.ones([q_len, k_len])
        hidden = np.triu(ones, 1 + m_len)
        if s.same_length:
            mask_len = k_len - s.mem_len
            hidden = hidden + np.tril(ones, -(q_len - mask_len if mask_len > 0 else q_len))
        return hidden > 0

    def layer(n, hidden, mem, hide):
        at = f"layers.{n}."
        own = f"{at}dec_attn.r_w_bias" in w and hugging_face
        u, v = (w[f"{at}dec_attn.{name}" if own else name] for name in ("r_w_bias", "r_r_bias"))
        kernels = [w[f"{at}dec_attn.{name}_net.weight"].T for name in ("qkv", "r", "o")]
        attended = _attend(hidden, mem, *kernels, u, v, s, hide)
        norms = [
            [w[f"{at}{block}.layer_norm.{part}"] for part in ("weight", "bias")] for block in ("dec_attn", "pos_ff")
        ]
        hidden = _norm(attended + hidden, *norms[0], 1e-5)
        first, second = (f"{at}pos_ff.CoreNet.{i}" for i in (0, 3))
        inner = np.maximum(hidden @ w[f"{first}.weight"].T + w[f"{first}.bias"], 0)
        return _norm(hidden + inner @ w[f"{second}.weight"].T + w[f"{second}.bias"], *norms[1], 1e-5)

    def output(hidden):
        parts = []
        for i, (start, end) in enumerate(itertools.pairwise(s.ends)):
            at = "crit.out_layers.0" if s.div_val == 1 else f"crit.out_layers.{i}"
            rows = slice(start, end) if s.div_val == 1 else slice(None)
            table, bias = w[f"{at}.weight"][rows], w[f"{at}.bias"][rows]
            if i == 0 and s.cutoffs:
                table = np.concatenate([table, w["crit.cluster_weight"]])
                bias = np.concatenate([bias, w["crit.cluster_bias"]])
            projection = w.get(f"crit.out_projs.{i}")
            parts.append(_log_softmax((hidden if projection is None else hidden @ projection) @ table.T + bias))
        head, *tails = parts
        found = [head[:, : s.ends[1]]]
        for i, tail in enumerate(tails, start=1):
            entry = s.ends[1] + i - 1 if hugging_face else -i
            found.append(head[:, entry][:, None] + tail)
        return np.concatenate(found, axis=1)

    mems = [np.zeros([s.mem_len if hugging_face else 0, s.d_model]) for _ in range(s.n_layer)]
    return _run(segments, mems, embed, mask, layer, output, s)


def _run(segments, mems, embed, mask, layer, output, s):
    results = []
    for tokens in segments:
        hidden = np.array([embed(token) for token in tokens])
        hide, new_mems = mask(len(tokens), len(mems[0])), []
        for n, mem in enumerate(mems):
            new_mems.append(np.concatenate([mem, hidden])[-s.mem_len :])
            hidden = layer(n, hidden, mem, hide)
        mems = new_mems
        results.append(output(hidden))
    return results


def _attend(hidden, mem, qkv, r, o, u, v, s, hide):
    """rel_multihead_attn: qkv [D, 3 H d], r [D, H d], o [H d, D], u and v [H, d], hide [T, K]."""
    context = np.concatenate([mem, hidden])
    q_len, k_len = len(hidden), len(context)
    q, k, value = (part.reshape(k_len, s.n_head, s.d_head) for part in np.split(context @ qkv, 3, axis=-1))
    q = q[-q_len:]
    position = np.arange(k_len - 1, -1, -1.0)
    position = np.minimum(position, s.clamp_len) if s.clamp_len > 0 else position
    angle = np.outer(position, 1 / 10000 ** (np.arange(0, s.d_model, 2.0) / s.d_model))
    r = (np.concatenate([np.sin(angle), np.cos(angle)], -1) @ r).reshape(k_len, s.n_head, s.d_head)
    vectors = []
    for h in range(s.n_head):
        content = (q[:, h] + u[h]) @ k[:, h].T
        shifted = (q[:, h] + v[h]) @ r[:, h].T
        shifted = np.concatenate([np.zeros([q_len, 1]), shifted], 1).reshape(k_len + 1, q_len)[1:].reshape(q_len, k_len)
        score = np.where(hide, -np.inf, (content + shifted) / s.d_head**0.5)
        vectors.append(np.exp(_log_softmax(score)) @ value[:, h])
    return np.concatenate(vectors, -1) @ o


def _norm(x, gamma, beta, epsilon):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon) * gamma + beta


def _log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))
