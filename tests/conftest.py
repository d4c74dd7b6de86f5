"""Two logical CPUs stand in for two replicas; they must exist before anything else touches TensorFlow."""

# ruff: noqa: E402 (what TensorFlow writes while it loads is diverted before)

import contextlib
import dataclasses
import functools
import gc
import os

from serving import terminal

terminal.own_stderr()
terminal.divert_libraries(os.devnull)  # while TensorFlow loads; in tests pytest keeps what is written

# Tests and their commands run a program for milliseconds; to optimize it takes LLVM seconds. XLA's own passes stay.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0".strip()
gc.set_threshold(100_000)  # as in scripts/start_up.py: to search all of TensorFlow's objects takes long

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
# Tiny graphs run as fast as they are, and to optimize them takes a tenth of the suite's time. Commands do optimize.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def pytest_runtest_setup(item):
    from txl_tf.devices.distribute import has_xla

    if item.get_closest_marker("xla") and not has_xla():
        pytest.skip("this TensorFlow has no XLA for CPUs")


@pytest.fixture(scope="module", autouse=True)
def graphs_are_freed():
    """TensorFlow keeps each traced tf.custom_gradient for ever, and with it the graph, until memory is full.

    The objects that are left after a module stay until the end, so Python need not search them for garbage again.
    """
    yield
    registered = ops.gradient_registry._registry
    for name in [name for name in registered if name.startswith("CustomGradient-")]:
        del registered[name]
    gc.collect()
    gc.freeze()


@pytest.fixture
def on_device():
    """A function after whose call operations are those for "cpu", "gpu" or "tpu"."""
    from txl_tf.ops import platform

    with contextlib.ExitStack() as stack:
        yield lambda target: stack.enter_context(platform.traced_for(target))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A small corpus of bytes with structure to learn: train about 20,000 tokens, valid and test about 2,000."""
    from txl_tf.data.prepare import prepare

    folder = tmp_path_factory.mktemp("text")
    draw = np.random.default_rng(1)
    words = ["lambda", "return", "import", "yield", "class", "while"]
    for i in range(40):
        text = " ".join(draw.choice(words, size=100))
        (folder / f"{i:02d}.txt").write_text(text + "\n")
    return prepare("text", str(tmp_path_factory.mktemp("corpus")), source=str(folder))


@pytest.fixture
def two_replicas():
    import replicas

    return replicas.two_replicas()


@pytest.fixture
def one_device():
    import replicas

    return replicas.one_device()


@pytest.fixture(scope="session")
def byte_model():
    """A LanguageModel over bytes with random weights, in which every query sees the same window."""
    from random_model import CONFIG, random_model

    from txl_tf.data.vocabularies import ByteVocabulary
    from txl_tf.inference.causal.language_model import LanguageModel

    return LanguageModel(random_model(dataclasses.replace(CONFIG, same_length=True)), ByteVocabulary())


@pytest.fixture(scope="session")
def plain_model(byte_model):
    """The same model, not compiled by XLA, which takes seconds for every number of texts."""
    from txl_tf.inference.causal.language_model import LanguageModel

    return LanguageModel(byte_model.model, byte_model.vocabulary, jit_compile=False)


@pytest.fixture(scope="session")
def byte_export(plain_model, tmp_path_factory):
    """The folder of its SavedModel."""
    from txl_tf.inference.causal.served_causal import ServedCausal

    export_dir = str(tmp_path_factory.mktemp("exported") / "model")
    ServedCausal(plain_model.generator, plain_model.vocabulary).save(export_dir)
    return export_dir


load_once = functools.lru_cache(maxsize=8)(tf.saved_model.load)


@pytest.fixture(scope="module")
def loaded_once():
    """Tests of servers load each export once, which takes seconds: they only read it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.saved_model, "load", load_once)
        yield


@pytest.fixture(scope="session")
def xlnet():
    """An XLNet with random weights, and its vocabulary."""
    from random_xlnet import random_xlnet, with_prefix

    from txl_tf.data.vocabularies import XLNetVocabulary

    vocabulary = with_prefix(XLNetVocabulary)
    return random_xlnet(vocab_size=vocabulary.vocab_size), vocabulary


@pytest.fixture(scope="session")
def xlnet_fill_in(xlnet):
    """It fills blanks."""
    from txl_tf.inference.xlnet.fill_in import FillIn

    return FillIn(*xlnet, jit_compile=False)


@pytest.fixture(scope="session")
def xlnet_continuation(xlnet):
    """It continues texts."""
    from txl_tf.inference.causal.left_to_right import LeftToRightXLNet

    return LeftToRightXLNet(*xlnet, jit_compile=False)


@pytest.fixture(scope="session")
def xlnet_export(xlnet_continuation, tmp_path_factory):
    """The folder of its SavedModel."""
    from txl_tf.inference.generating_xlnet import GeneratingXLNet

    export_dir = tmp_path_factory.mktemp("exported_xlnet") / "model"
    GeneratingXLNet(xlnet_continuation, lengths=(32,), jit_compile=False).save(str(export_dir))
    return export_dir
