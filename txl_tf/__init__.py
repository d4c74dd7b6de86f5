"""Transformer-XL (Dai et al. 2019, arXiv 1901.02860) and XLNet (Yang et al. 2019, arXiv 1906.08237), in TensorFlow 2.

`load` gives a trained model as a `Model`, whose methods are what it can do; `InputError` says in one line what a user
can mend. Importing this package does not load TensorFlow.

Shapes used throughout: B batch (lanes), T = tgt_len, M = mem_len, K = M + T keys, D = d_model, H = n_head,
N = n_layer, V = vocabulary. Everything is batch-major. A name such as `q_BxHxTxd` carries its shape.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from txl_tf.errors import InputError

if TYPE_CHECKING:
    from txl_tf.api import Model, load

__all__ = ["InputError", "Model", "load"]

if "keras" not in sys.modules:  # which reads this when it is imported
    os.environ["KERAS_BACKEND"] = "tensorflow"
elif (backend := sys.modules["keras"].config.backend()) != "tensorflow":
    raise ImportError(f"txl_tf needs Keras on TensorFlow, and Keras was imported on {backend}: import txl_tf before it")


def __getattr__(name: str) -> Any:
    """Loads TensorFlow only when `load` or `Model` is asked for."""
    if name in ("Model", "load"):
        from txl_tf import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), "Model", "load"]
