"""Hostile files: refused in one line, with nothing run, read or imported."""

import collections
import io
import os
import pickle
import re
import sys
import zipfile

import published_files as files
import pytest

from txl_tf.errors import InputError
from txl_tf.published.importing import open_checkpoint
from txl_tf.published.pickles import Global, PickledCall, read_pickle
from txl_tf.published.tensor_files import open_safetensors
from txl_tf.published.vocabularies import read_vocabulary


class Asks:
    """Pickles as whatever call it is given."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


def hostile(mark):
    """Pickles that would create the file `mark` if anything of theirs ran."""
    touch = f"open({str(mark)!r}, 'w').close()"
    command = b"(S'touch %s'\ntR." % str(mark).encode()
    system = b"cposix\nsystem\n" + command
    ordered = b"ccollections\nOrderedDict\n"
    return {
        "system": pickle.dumps(Asks(os.system, (f"touch {mark}",))),
        "protocol 0": system,
        "eval": pickle.dumps(Asks(eval, (touch,)), protocol=4),
        "exec inside": pickle.dumps({"idx2sym": ["a", Asks(exec, (touch,))]}),
        "getattr": b"cbuiltins\ngetattr\n(cbuiltins\n__import__\n(S'os'\ntRS'system'\ntR(S'touch %s'\ntR."
        % str(mark).encode(),
        "dotted name": by_stack("collections", "OrderedDict.__init__.__globals__"),
        "nested attribute": by_stack("collections", "abc.sys.modules"),
        "submodule": b"ccollections.abc\nsys\n.",
        "instance": b"(S'touch %s'\niposix\nsystem\n." % str(mark).encode(),
        "object": b"(cposix\nsystem\nS'touch %s'\no." % str(mark).encode(),
        "new": b"csubprocess\nPopen\n(S'touch %s'\nt\x81." % str(mark).encode(),
        "call of a call": ordered + b"(tR(S'a'\ntR.",
        "call of a string": b"S'os.system'\n(S'touch'\ntR.",
        "state of a dict": b"(dS'a'\nb.",
        "state of a class": ordered + b"(S'__reduce__'\nS'a'\ndb.",
        "extension": b"\x80\x02\x82\x01.",
        "buffer": b"\x80\x05\x97.",
        "operator": b"coperator\nattrgetter\n(S'system'\ntR.",
        "functools": b"cfunctools\nreduce\n.",
        "torch's loader": b"ctorch.serialization\nload\n(S'x'\ntR.",
        "torch's hub": b"ctorch.hub\nload\n(S'x'\ntR.",
    }


def by_stack(module, name):
    """A pickle that looks a name up as protocol 4 does, where dots lead on to attributes."""
    return b"\x80\x04" + b"".join(b"\x8c%c%s" % (len(text), text.encode()) for text in (module, name)) + b"\x93."


@pytest.mark.parametrize("name", ["system", "protocol 0", "eval", "exec inside", "getattr", "instance", "object"])
def test_these_attacks_are_real(tmp_path, name):
    mark = tmp_path / "mark"
    pickle.loads(hostile(mark)[name])
    assert mark.exists()


@pytest.mark.parametrize("name", list(hostile("x")))
def test_refused_as_vocabulary_and_as_checkpoint(tmp_path, name):
    """The same pickle as vocab.pkl, cache.pkl, in both formats of torch.save."""
    mark = tmp_path / "mark"
    data = hostile(mark)[name]
    loaded = set(sys.modules)
    (tmp_path / "vocab.pkl").write_bytes(data)
    with pytest.raises(InputError, match=r"vocab\.pkl is refused"):
        read_vocabulary(str(tmp_path / "vocab.pkl"), "wt103")
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("archive/data.pkl", data)
    (tmp_path / "legacy.pt").write_bytes(b"".join(pickle.dumps(head) for head in files.LEGACY_HEAD) + data)
    for file in ("model.pt", "legacy.pt"):
        with pytest.raises(InputError, match=f"{file} is refused"):
            open_checkpoint("official_pytorch", str(tmp_path / file))
    assert not mark.exists()
    assert not {name for name in set(sys.modules) - loaded if name.startswith(("torch", "subprocess"))}


def test_state_restores_nothing():
    """BUILD with __setstate__ and the like among an allowed object's attributes stays data."""
    data = b"ccollections\nOrderedDict\n(tR(S'__setstate__'\nccollections\nOrderedDict\nS'__class__'\nS'x'\ndb."
    tree = read_pickle(io.BytesIO(data), re.compile(r"collections\.OrderedDict"), "x")
    assert isinstance(tree, PickledCall)
    assert tree.state == {"__setstate__": Global("collections.OrderedDict"), "__class__": "x"}


@pytest.mark.parametrize("protocol", range(5))
def test_plain_data_comes_back(protocol):
    data = {"a": [1, -2, 2**70, 0.5, None, True], "é": ("x", (), (1,), (1, 2, 3, 4)), "b": b"\x00\xff", 3: {"s"}}
    twice = ["shared"]
    data["same"] = [twice, twice]
    allowed = re.compile(r"_codecs\.encode|(builtins|__builtin__)\.(set|bytes)|collections\.OrderedDict")
    tree = read_pickle(io.BytesIO(pickle.dumps(data, protocol=protocol)), allowed, "x")
    assert tree["a"] == data["a"] and tree["é"] == data["é"] and tree["same"][0] is tree["same"][1]
    if protocol >= 3:
        assert tree["b"] == data["b"]
    if protocol >= 4:
        assert tree[3] == data[3]


@pytest.mark.parametrize("end", [0, 1, 5, 40, -1])
def test_a_pickle_cut_short(end):
    data = pickle.dumps({"words": ["a" * 30, "b"] * 10, "more": collections.OrderedDict(a=1)})[:end]
    with pytest.raises(InputError, match="not a whole pickle"):
        read_pickle(io.BytesIO(data), re.compile("collections.*"), "x")


def tensor_pickle(offset=0, size=(2, 2), stride=(2, 1), key="0"):
    """A state_dict with one tensor, over a storage of four numbers."""
    sizes, strides = ("".join(f"I{number}\n" for number in numbers) for numbers in (size, stride))
    storage = f"(S'storage'\nctorch\nFloatStorage\nS'{key}'\nS'cpu'\nI4\ntQ"
    arguments = f"({storage}I{offset}\n({sizes}t({strides}tI00\n(dt"
    return f"(dS'w'\nctorch._utils\n_rebuild_tensor_v2\n{arguments}Rs.".encode()


@pytest.mark.parametrize(
    "layout",
    [
        {"offset": 1},
        {"offset": -1},
        {"size": (2, 3)},
        {"stride": (3, 1)},
        {"stride": (-2, 1)},
        {"size": (1 << 40, 1 << 40), "stride": (0, 1)},
        {"key": "../../secret"},
    ],
)
def test_tensors_that_reach_beyond_their_storage(tmp_path, layout):
    from txl_tf.published.torch_files import TorchFile, state_dict

    def read(**changed):
        with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
            archive.writestr("archive/data.pkl", tensor_pickle(**changed))
            archive.writestr("archive/data/0", bytes(range(16)))
        file = TorchFile(str(tmp_path / "model.pt"))
        return file.tensors(state_dict(file.root)).read("w")

    assert read().shape == (2, 2)
    with pytest.raises(InputError):
        read(**layout)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: (1 << 60).to_bytes(8, "little") + data[8:],
        lambda data: data.replace(b'"F32"', b'"F31"'),
        lambda data: data.replace(b"[0, 16]", b"[4, 20]"),
        lambda data: data.replace(b"[2, 2]", b"[2, 3]"),
        lambda data: data[:8] + b"[" + data[9:],
        lambda data: b"",
    ],
)
def test_damaged_safetensors(tmp_path, damage, rng):
    path = tmp_path / "model.safetensors"
    files.write_safetensors(path, {"w": rng.normal(size=[2, 2]), "v": rng.normal(size=[3])})
    assert open_safetensors(str(path)).read("w").shape == (2, 2)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=r"model\.safetensors"):
        open_safetensors(str(path))
