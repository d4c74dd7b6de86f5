"""Transformer-XL (Dai et al. 2019, arXiv 1901.02860) and XLNet (Yang et al. 2019, arXiv 1906.08237), in TensorFlow 2.

`load` gives a trained model as a `Model`, whose methods are what it can do; `InputError` says in one line what a user
can mend. Importing this package does not load TensorFlow.

Shapes used throughout: B batch (lanes), T = tgt_len, M = mem_len, K = M + T keys, D = d_model, H = n_head,
N = n_layer, V = vocabulary. Everything is batch-major. A name such as `q_BxHxTxd` carries its shape.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from txl_tf.errors import InputError

if TYPE_CHECKING:
    from txl_tf.api import Model, load

__all__ = ["InputError", "Model", "load"]

os.environ.setdefault("KERAS_BACKEND", "tensorflow")


def __getattr__(name: str) -> Any:
    """Loads TensorFlow only when `load` or `Model` is asked for."""
    if name in ("Model", "load"):
        from txl_tf import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), "Model", "load"]
