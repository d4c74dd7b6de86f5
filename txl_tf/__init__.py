"""Transformer-XL (Dai et al. 2019, arXiv 1901.02860) in TensorFlow 2 and Keras 3.

Shapes used throughout: B batch (lanes), T = tgt_len, M = mem_len, K = M + T keys, D = d_model, H = n_head,
N = n_layer, V = vocabulary. Everything is batch-major. A name such as `q_BxHxTxd` carries its shape.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
