"""Chooses tokens in NumPy as the signature `write` does in its graph, where something is added to the probabilities."""

import numpy as np

OFF = {"repetition_penalty": 1.0, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0}
"""The settings of sampling that are known here, with the values that change nothing."""


def choose(log_probs, seen, seed, length, settings):
    """The next token of a text, an int.

    Args:
        log_probs: float32 [V].
        seen: bool [V], the tokens that the text has.
        seed: int32, of the text.
        length: how many tokens the text has.
        settings: values by name.
    """
    settings = OFF | settings
    logits = _transformed(log_probs.astype(np.float32), seen, settings)
    if not settings["temperature"]:
        return int(logits.argmax())
    probability = np.exp(logits - logits.max())
    cumulative = np.cumsum(probability / probability.sum(), dtype=np.float32)
    drawn = np.flatnonzero((cumulative > _uniform(seed, length) * cumulative[-1]) & (probability > 0))
    return int(drawn[0]) if len(drawn) else int(logits.argmax())


def _transformed(logits, seen, settings):
    """Log-probabilities after all settings, in their order."""
    penalty = np.float32(settings["repetition_penalty"])
    if penalty != 1:
        logits = np.where(seen, np.where(logits > 0, logits / penalty, logits * penalty), logits)
    if settings["temperature"] not in (0, 1):
        least = np.finfo(np.float32).min
        divided = logits / np.float32(settings["temperature"])
        logits = np.where(logits < logits.max(), divided, np.maximum(divided, least))
    if settings["top_k"]:
        logits = _limited(logits, _largest(logits, np.ones_like(logits), settings["top_k"]))
    if settings["top_p"] < 1:
        logits = _limited(logits, _largest(logits, _softmax(logits), settings["top_p"]))
    if settings["min_p"]:
        logits = _limited(logits, logits >= logits.max() + np.log(np.float32(settings["min_p"])))
    if settings["typical_p"] < 1:
        probability = _softmax(logits)
        with np.errstate(divide="ignore", invalid="ignore"):
            surprise = -np.log(probability)
            entropy = np.nansum(np.where(probability > 0, surprise * probability, 0))
        logits = _limited(logits, _largest(-np.abs(surprise - entropy), probability, settings["typical_p"]))
    return logits


def _softmax(logits):
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum()


def _limited(logits, kept):
    return np.where(kept, logits, -np.inf).astype(np.float32)


def _largest(numbers, weights, target):
    """The largest numbers whose weights together reach a target: as few as possible, but with all equal ones."""
    order = np.argsort(-numbers, kind="stable")
    reached = np.flatnonzero(np.cumsum(weights[order]) >= np.float32(target))
    return numbers >= numbers[order[reached[0]]] if len(reached) else np.ones(numbers.shape, bool)


def _uniform(seed, position):
    """A number in [0, 1) from a seed and a position: two rounds of the mixer lowbias32 (Wellons 2018)."""
    bits = _mix(_mix(seed % 2**32) + position)
    return np.float32((bits >> 8) * 2.0**-24)


def _mix(bits):
    bits %= 2**32
    bits = (bits ^ bits >> 16) * 0x7FEB352D % 2**32
    bits = (bits ^ bits >> 15) * 0x846CA68B % 2**32
    return bits ^ bits >> 16
