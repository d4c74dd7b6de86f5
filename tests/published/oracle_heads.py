"""Not a test: what the heads of Hugging Face's XLNets return, by the reference and by our imported models."""

import collections

import numpy as np
import reference_xlnet as reference
import tensorflow as tf

from txl_tf.models.xlnet.model import Text
from txl_tf.tasks.answering import Answering

SIMPLE = "XLNetForQuestionAnsweringSimple"


def imported_head_outputs(kind, model, arrays):
    """The outputs of an imported model's head for these inputs, by Hugging Face's names."""
    shape = arrays["input_ids_shape"]
    given = {
        "tokens": tf.constant(arrays["input_ids"].reshape(shape), tf.int32),
        "segments": tf.constant(arrays["token_type_ids"].reshape(shape), tf.int32),
        "padding": tf.constant(arrays["input_mask"].reshape(shape) == 1),
    }
    if kind == SIMPLE:
        nothing = tf.zeros([shape[0]], tf.int32)
        logits = model(allowed=tf.ones(shape, tf.bool), cls_index=nothing, start=nothing, **given)
        wanted = {name: tf.constant(arrays[f"{name}_positions"]) for name in ("start", "end")}
        loss = np.mean(Answering().losses(logits, wanted))
        return {"start_logits": logits.start.numpy(), "end_logits": logits.end.numpy(), "loss": loss}
    if kind != "XLNetForQuestionAnswering":
        logits = model(**given).numpy()
        return {"logits": logits[..., 0] if kind == "XLNetForMultipleChoice" else logits}
    given["allowed"], given["cls_index"] = tf.constant(arrays["p_mask"] == 0), tf.constant(arrays["cls_index"])
    hidden, _, _ = model.body(given["tokens"], text=Text(given["segments"], padding=given["padding"]))
    if "start_positions" in arrays:
        # Their loss: of the answer class they take the true beginning's state.
        start = tf.constant(arrays["start_positions"])
        logits = model(start=start, **given)
        states = (tf.gather(hidden, at, batch_dims=1) for at in (start, given["cls_index"]))
        logit = model.head.impossible_logit(*states).numpy()
        rows = np.arange(len(logit))
        losses = [
            -reference.log_softmax(part.numpy().astype(np.float64))[rows, arrays[name]]
            for part, name in ((logits.start, "start_positions"), (logits.end, "end_positions"))
        ]
        impossible = np.logaddexp(0, logit) - arrays["is_impossible"] * logit
        return {"loss": sum(map(np.mean, losses)) / 2 + np.mean(impossible) / 2}
    tops = model.config.start_n_top, model.config.end_n_top
    best = model.head.best(hidden, given["allowed"], given["cls_index"], *tops)
    flat = [len(logit := best.impossible.numpy()), -1]
    return {
        "start_top_index": best.start.numpy(),
        "start_top_log_probs": np.exp(best.start_log_prob.numpy()),  # theirs are probabilities, by ends, then starts
        "end_top_index": best.end.numpy().transpose(0, 2, 1).reshape(flat),
        "end_top_log_probs": np.exp(best.end_log_prob.numpy()).transpose(0, 2, 1).reshape(flat),
        "cls_logits": logit,
    }


def answering(weights, hidden, arrays, settings):
    """What Hugging Face's question answering returns of a batch [B, T, D], in its own order of beams."""
    found = collections.defaultdict(list)
    for b, states in enumerate(hidden):
        allowed, cls_index = arrays["p_mask"][b] == 0, arrays["cls_index"][b]
        begin = reference.start_logits(weights, states, allowed)
        if "start_positions" in arrays:
            start, end = arrays["start_positions"][b], arrays["end_positions"][b]
            found["starts"].append(-reference.log_softmax(begin)[start])
            found["ends"].append(-reference.log_softmax(reference.end_logits(weights, states, allowed, start))[end])
            pair = np.concatenate([states[start], states[cls_index]]) @ weights["impossible/inner/kernel"]
            logit = np.tanh(pair + weights["impossible/inner/bias"]) @ weights["impossible/outer/kernel"]
            found["classes"].append(np.logaddexp(0, logit[0]) - arrays["is_impossible"][b] * logit[0])
            continue
        starts = np.argsort(-begin)[: settings["start_n_top"]]
        found["start_top_index"].append(starts)
        found["start_top_log_probs"].append(np.exp(reference.log_softmax(begin))[starts])
        ends = [reference.end_logits(weights, states, allowed, start) for start in starts]
        best = np.stack([np.argsort(-logits)[: settings["end_n_top"]] for logits in ends], axis=1)
        found["end_top_index"].append(best.ravel())
        probabilities = np.exp(reference.log_softmax(np.stack(ends)))
        found["end_top_log_probs"].append(probabilities[np.arange(len(starts)), best].ravel())
        found["cls_logits"].append(reference.impossible_logit(weights, states, allowed, cls_index))
    if "starts" in found:
        return {"loss": (np.mean(found["starts"]) + np.mean(found["ends"])) / 2 + np.mean(found["classes"]) / 2}
    return dict(found)


def head_outputs(kind, weights, hidden, arrays, settings):
    """The outputs of a head for a batch's last hidden states [B, T, D], by Hugging Face's names."""
    if kind == "XLNetLMHeadModel":
        return {}
    if kind == "XLNetForQuestionAnswering":
        return answering(weights, hidden, arrays, settings)
    if kind == SIMPLE:
        logits = np.stack(hidden) @ weights["positions/kernel"] + weights["positions/bias"]
        found, rows = {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}, np.arange(len(logits))
        losses = [
            -reference.log_softmax(found[f"{name}_logits"])[rows, arrays[f"{name}_positions"]]
            for name in ("start", "end")
        ]
        return found | {"loss": np.mean(losses)}
    if kind == "XLNetForTokenClassification":
        return {"logits": np.stack([states @ weights["tags/kernel"] + weights["tags/bias"] for states in hidden])}
    logits = np.stack([reference.summary_logits(weights, states, settings["summary_type"]) for states in hidden])
    if kind == "XLNetForMultipleChoice":
        logits = logits.reshape(arrays["input_ids_shape"][:2])
    found = {"logits": logits}
    if "labels" in arrays:
        labels = arrays["labels"]
        if logits.shape[1] == 1:
            found["loss"] = np.mean((logits[:, 0] - labels) ** 2)
        elif settings.get("problem_type") == "multi_label_classification":
            found["loss"] = np.mean(np.logaddexp(0, logits) - labels * logits)
        else:
            found["loss"] = -np.mean(reference.log_softmax(logits)[np.arange(len(labels)), labels])
    return found
