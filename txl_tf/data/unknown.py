"""Messages about text that a vocabulary does not know."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from txl_tf.data.vocabularies import Vocabulary

SAID_FROM = 0.01
"""A smaller share of unknown tokens gets no message."""
_TOKENS = {"word": "words", "subword": "pieces"}


def unknown_note(unit: str, share: float, where: str) -> str:
    """A line about the share of unknown tokens, 0 to 1, in a text called `where`; "" for a small one."""
    if share <= SAID_FROM:
        return ""
    tokens = _TOKENS.get(unit, "tokens")
    return f"{100 * share:.1f} % of the {tokens} of {where} are unknown: the model reads them all alike"


def unknown_share(vocabulary: Vocabulary, texts: Iterable[np.ndarray]) -> float:
    """The share of unknown words or pieces among the tokens of texts, ids [n] each; 0 without tokens."""
    ids = np.concatenate([np.zeros(0, np.int32), *texts])
    unknown = vocabulary.special.unknown
    return 0.0 if unknown is None or not len(ids) else float(np.mean(ids == unknown))
