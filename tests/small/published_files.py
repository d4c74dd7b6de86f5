"""Writers of the published file formats, without torch, transformers or safetensors."""

import collections
import io
import json
import pickle
import sys
import types
import zipfile
from unittest import mock

import numpy as np
import tensorflow as tf

LEGACY_HEAD = (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}})


def write_tf(prefix, tensors):
    """What tf.train.Saver writes."""
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(tensor) for tensor in tensors.values()],
    )


def write_safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        raw = np.ascontiguousarray(tensor, "<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def without_copies(tensors, drop="crit."):
    """As Hugging Face saves safetensors: of names that are one tensor, those that are tied are left out."""
    kept, seen = {}, {}
    for name in sorted(tensors, key=lambda name: name.startswith(drop)):
        if id(tensors[name]) not in seen:
            kept[name] = seen[id(tensors[name])] = tensors[name]
    return kept


class _Tensor:
    """A torch.Tensor, as a pickle holds it."""

    def __init__(self, array, key, parameter=False):
        self.array, self.key, self.parameter = array, key, parameter


class _Storage:
    def __init__(self, tensor):
        self.tensor = tensor


def _module(name, **members):
    module = types.ModuleType(name)
    for member_name, member in members.items():
        member.__module__, member.__qualname__, member.__name__ = name, member_name, member_name
        setattr(module, member_name, member)
    return module


def _rebuild_tensor_v2(*args):
    raise AssertionError


def _rebuild_parameter(*args):
    raise AssertionError


FloatStorage = type("FloatStorage", (), {})
_TORCH = {
    "torch": _module("torch", FloatStorage=FloatStorage),
    "torch._utils": _module(
        "torch._utils", _rebuild_tensor_v2=_rebuild_tensor_v2, _rebuild_parameter=_rebuild_parameter
    ),
}


class _Pickler(pickle.Pickler):
    def persistent_id(self, value):
        if isinstance(value, _Storage):
            tensor = value.tensor
            return ("storage", FloatStorage, tensor.key, "cpu", tensor.array.size, *self.legacy)
        return None

    def reducer_override(self, value):
        if not isinstance(value, _Tensor):
            return NotImplemented
        if value.parameter:
            return _rebuild_parameter, (_Tensor(value.array, value.key), True, {})
        strides = tuple(stride // value.array.itemsize for stride in value.array.strides)
        return _rebuild_tensor_v2, (_Storage(value), 0, value.array.shape, strides, False, {})


def torch_pickle(value, legacy=False):
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=2)
    pickler.legacy = (None,) if legacy else ()
    with mock.patch.dict(sys.modules, _TORCH):
        pickler.dump(value)
    return file.getvalue()


def as_torch(tensors, parameter=False):
    """Arrays as pickled tensors; equal arrays share a storage. Also the storages by key."""
    keys = {}
    for array in tensors.values():
        keys.setdefault(id(array), (str(len(keys)), array))
    named = {name: _Tensor(array, keys[id(array)][0], parameter) for name, array in tensors.items()}
    return named, {key: np.ascontiguousarray(array, "<f4").tobytes() for key, array in keys.values()}


def write_torch(path, value, storages):
    """Writes the format of torch.save since PyTorch 1.6."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", torch_pickle(value))
        archive.writestr("archive/byteorder", "little")
        for key, data in storages.items():
            archive.writestr(f"archive/data/{key}", data)
        archive.writestr("archive/version", "3\n")


def write_torch_legacy(path, value, storages):
    """Writes the format of torch.save before 1.6, which is not a zip."""
    parts = [pickle.dumps(head, protocol=2) for head in LEGACY_HEAD]
    parts += [torch_pickle(value, legacy=True), pickle.dumps(list(storages), protocol=2)]
    for data in storages.values():
        parts += [(len(data) // 4).to_bytes(8, "little"), data]
    path.write_bytes(b"".join(parts))


def pickled_module(tensors, attributes):
    """nn.Modules that hold these tensors: {"layers.0.dec_attn.r_net.weight": ..}, with attributes by module name."""
    kind = type("MemTransformerLM", (), {})
    _TORCH["mem_transformer"] = _module("mem_transformer", MemTransformerLM=kind)

    def make(prefix):
        module = kind()
        below = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        children = dict.fromkeys(name.split(".")[0] for name in below if "." in name)
        module.__dict__ |= attributes.get(prefix[:-1], {})
        module._parameters = {name: tensor for name, tensor in below.items() if "." not in name}
        module._buffers = {}
        module._modules = {name: make(f"{prefix}{name}.") for name in children}
        return module

    return make("")


class Vocab:
    """As in the official vocabulary.py."""

    def __init__(self, symbols):
        self.counter = collections.Counter(symbols)
        self.special, self.min_freq, self.max_size, self.lower_case = ["<eos>"], 0, None, False
        self.delimiter, self.vocab_file, self.eos_idx = None, None, 0
        self.idx2sym = list(symbols)
        self.sym2idx = collections.OrderedDict((symbol, i) for i, symbol in enumerate(symbols))


class Corpus:
    """As in the official data_utils.py."""

    def __init__(self, symbols):
        self.dataset, self.vocab, self.cutoffs = "wt103", Vocab(symbols), [0, 2, 7]
        self.train = self.valid = self.test = np.arange(5)


def official_pickle(value, protocol):
    """Pickled where Corpus is data_utils.Corpus and Vocab vocabulary.Vocab."""
    modules = {"data_utils": _module("data_utils", Corpus=Corpus)}
    modules["vocabulary"] = _module("vocabulary", Vocab=Vocab)
    with mock.patch.dict(sys.modules, modules):
        return pickle.dumps(value, protocol=protocol)


def not_saved(model, vocabulary, task="", labels=(), evaluation=None, **data):
    """The parts of a TrainedModel that an export reads, for a model without a model_dir."""
    config = types.SimpleNamespace(task=task, eval=evaluation, data=types.SimpleNamespace(**data))
    return types.SimpleNamespace(model=model, vocabulary=vocabulary, config=config, class_names=lambda: labels)
