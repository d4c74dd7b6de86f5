"""Transformer-XL (Dai et al. 2019, arXiv 1901.02860) and XLNet (Yang et al. 2019, arXiv 1906.08237), in TensorFlow 2.

This module exports the Python API, which users may rely on. Everything else is internal and may change.

load, Model                                a trained model, and all it can do as methods
prepare, train, make_strategy              text to a corpus, a corpus to a trained model_dir, and the devices for it
BatchPredictor                             a model for tables that Ray, Spark or Beam reads in batches
Finetuner                                  fine-tunes a pretrained XLNet
LanguageModel, FillIn, Encoder, Predictor  used by the methods of a Model; can do more, such as streams, beam search
TransformerXL, TransformerXLConfig         the Keras model, and its settings
XLNet, XLNetConfig                         the same for XLNet
StatefulTransformerXL, SeparateTexts       a Transformer-XL for Keras's fit
RelMultiHeadAttention, DecoderLayer        the layers alone, also AdaptiveEmbedding, AdaptiveSoftmax
load_corpus, TrainingLanes, DataConfig     a corpus that prepare_data wrote, and its batches; also EvaluationLanes
InputError                                 an error that the user can fix, in one line

The modules txl_tf.sklearn and txl_tf.harness, which users may rely on, too, are for scikit-learn and lm_eval.

Each is loaded when it is first used: importing this package does not load TensorFlow. help(txl_tf.load) says more.

Shapes used throughout: B batch (lanes), T = tgt_len, M = mem_len, K = M + T keys, D = d_model, H = n_head,
N = n_layer, V = vocabulary. Everything is batch-major. A name such as `q_BxHxTxd` carries its shape.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from txl_tf.quiet import quiet

if TYPE_CHECKING:
    from txl_tf.api import Model, load
    from txl_tf.batch_predictor import BatchPredictor
    from txl_tf.data.lanes import EvaluationLanes, TrainingLanes
    from txl_tf.data.manifest import load_corpus
    from txl_tf.data.prepare import prepare
    from txl_tf.devices.distribute import make_strategy
    from txl_tf.errors import InputError
    from txl_tf.finetuner import Finetuner
    from txl_tf.inference.causal.language_model import LanguageModel
    from txl_tf.inference.tasks.predictor import Predictor
    from txl_tf.inference.xlnet.encoder import Encoder
    from txl_tf.inference.xlnet.fill_in import FillIn
    from txl_tf.layers.attention import RelMultiHeadAttention
    from txl_tf.layers.decoder_layer import DecoderLayer
    from txl_tf.layers.embedding import AdaptiveEmbedding
    from txl_tf.layers.softmax import AdaptiveSoftmax
    from txl_tf.models.transformer_xl.config import TransformerXLConfig
    from txl_tf.models.transformer_xl.model import TransformerXL
    from txl_tf.models.transformer_xl.stateful import SeparateTexts, StatefulTransformerXL
    from txl_tf.models.xlnet.config import XLNetConfig
    from txl_tf.models.xlnet.model import XLNet
    from txl_tf.settings.run import DataConfig
    from txl_tf.trainer import train

__version__ = "0.4.0"

__all__ = [
    "AdaptiveEmbedding",
    "AdaptiveSoftmax",
    "BatchPredictor",
    "DataConfig",
    "DecoderLayer",
    "Encoder",
    "EvaluationLanes",
    "FillIn",
    "Finetuner",
    "InputError",
    "LanguageModel",
    "Model",
    "Predictor",
    "RelMultiHeadAttention",
    "SeparateTexts",
    "StatefulTransformerXL",
    "TrainingLanes",
    "TransformerXL",
    "TransformerXLConfig",
    "XLNet",
    "XLNetConfig",
    "load",
    "load_corpus",
    "make_strategy",
    "prepare",
    "train",
]

_HOMES = {
    "api": ("Model", "load"),
    "batch_predictor": ("BatchPredictor",),
    "data.lanes": ("EvaluationLanes", "TrainingLanes"),
    "data.manifest": ("load_corpus",),
    "data.prepare": ("prepare",),
    "devices.distribute": ("make_strategy",),
    "errors": ("InputError",),
    "finetuner": ("Finetuner",),
    "inference.xlnet.encoder": ("Encoder",),
    "inference.xlnet.fill_in": ("FillIn",),
    "inference.causal.language_model": ("LanguageModel",),
    "inference.tasks.predictor": ("Predictor",),
    "layers.attention": ("RelMultiHeadAttention",),
    "layers.decoder_layer": ("DecoderLayer",),
    "layers.embedding": ("AdaptiveEmbedding",),
    "layers.softmax": ("AdaptiveSoftmax",),
    "models.transformer_xl.config": ("TransformerXLConfig",),
    "models.transformer_xl.model": ("TransformerXL",),
    "models.transformer_xl.stateful": ("SeparateTexts", "StatefulTransformerXL"),
    "models.xlnet.config": ("XLNetConfig",),
    "models.xlnet.model": ("XLNet",),
    "settings.run": ("DataConfig",),
    "trainer": ("train",),
}
"""The modules of exported names."""

if "keras" not in sys.modules:  # which reads this when it is imported
    os.environ["KERAS_BACKEND"] = "tensorflow"
elif (backend := sys.modules["keras"].config.backend()) != "tensorflow":
    raise ImportError(f"txl_tf needs Keras on TensorFlow, and Keras was imported on {backend}: import txl_tf before it")


def __getattr__(name: str) -> Any:
    """Loads an exported name on first use. dir() omits them, or help(txl_tf) would load and print all of them."""
    for home, names in _HOMES.items():
        if name in names:
            with quiet():
                return getattr(importlib.import_module(f"txl_tf.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
