"""Not a test: the weights of XLNets that other code made, by the names of tests/references/reference_xlnet.py."""

ATTENTION = {"query_kernel": "q", "key_kernel": "k", "value_kernel": "v", "position_kernel": "r"}
BIASES = {"content_bias": "r_w_bias", "position_bias": "r_r_bias", "segment_bias": "r_s_bias"}


def official_weights(read, n_layer, untie_r):
    """The reference's weights from the official code's.

    Args:
        read: a function from a name without "model/" to an array, or to None where there is no such variable.
        n_layer, untie_r: of xlnet_config.json.
    """
    mask, bias = read("transformer/mask_emb/mask_emb"), read("lm_loss/bias")
    weights = {"embedding": read("transformer/word_embedding/lookup_table"), "layers": []}
    weights |= {} if mask is None else {"mask_embedding": mask[0, 0]}
    weights |= {} if bias is None else {"softmax_bias": bias}
    biases = {ours: read(f"transformer/{theirs}") for ours, theirs in BIASES.items()}
    weights |= {} if untie_r else biases
    for i in range(n_layer):
        where = f"transformer/layer_{i}/"
        layer = {ours: read(f"{where}rel_attn/{theirs}/kernel") for ours, theirs in ATTENTION.items()}
        layer |= {name: bias[i] for name, bias in biases.items()} if untie_r else {}
        layer["output_kernel"] = read(f"{where}rel_attn/o/kernel").transpose(1, 2, 0)
        layer["segment_table"] = read("transformer/seg_embed")[i]
        for part in ("gamma", "beta"):
            layer[f"attention_norm/{part}"] = read(f"{where}rel_attn/LayerNorm/{part}")
            layer[f"feed_forward_norm/{part}"] = read(f"{where}ff/LayerNorm/{part}")
        for part in ("kernel", "bias"):
            layer[f"feed_forward/inner/{part}"] = read(f"{where}ff/layer_1/{part}")
            layer[f"feed_forward/outer/{part}"] = read(f"{where}ff/layer_2/{part}")
        weights["layers"].append(layer)
    return weights


def huggingface_weights(tensors, n_layer):
    """The reference's weights, heads included, from Hugging Face's state dict."""
    weights = {
        "embedding": tensors["transformer.word_embedding.weight"],
        "mask_embedding": tensors["transformer.mask_emb"][0, 0],
        "layers": [],
    }
    for i in range(n_layer):
        attention, inner = f"transformer.layer.{i}.rel_attn.", f"transformer.layer.{i}.ff."
        layer = {ours: tensors[attention + theirs] for ours, theirs in (ATTENTION | BIASES).items()}
        layer["output_kernel"] = tensors[attention + "o"].transpose(1, 2, 0)
        layer["segment_table"] = tensors[attention + "seg_embed"]
        for ours, theirs in (("gamma", "weight"), ("beta", "bias")):
            layer[f"attention_norm/{ours}"] = tensors[f"{attention}layer_norm.{theirs}"]
            layer[f"feed_forward_norm/{ours}"] = tensors[f"{inner}layer_norm.{theirs}"]
        for ours, theirs in (("inner", "layer_1"), ("outer", "layer_2")):
            layer[f"feed_forward/{ours}/kernel"] = tensors[f"{inner}{theirs}.weight"].T
            layer[f"feed_forward/{ours}/bias"] = tensors[f"{inner}{theirs}.bias"]
        weights["layers"].append(layer)
    dense = {
        "summary": "sequence_summary.summary",
        "logits": "logits_proj",
        "tags": "classifier",
        "start": "start_logits.dense",
        "end/inner": "end_logits.dense_0",
        "end/outer": "end_logits.dense_1",
        "impossible/inner": "answer_class.dense_0",
        "impossible/outer": "answer_class.dense_1",
        "positions": "qa_outputs",
    }
    for ours, theirs in dense.items():
        if f"{theirs}.weight" in tensors:
            weights[f"{ours}/kernel"] = tensors[f"{theirs}.weight"].T
        if f"{theirs}.bias" in tensors:
            weights[f"{ours}/bias"] = tensors[f"{theirs}.bias"]
    if "end_logits.LayerNorm.weight" in tensors:
        weights["end/norm/gamma"] = tensors["end_logits.LayerNorm.weight"]
        weights["end/norm/beta"] = tensors["end_logits.LayerNorm.bias"]
    if "lm_loss.bias" in tensors:
        weights["softmax_bias"] = tensors["lm_loss.bias"]
    return weights
