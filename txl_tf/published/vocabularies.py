"""Reads the vocabularies of published checkpoints as a Vocabulary with the same ids.

The list of symbols comes from a text file (one symbol per line), from JSON, or from a pickle: the official code's
cache.pkl, Hugging Face's vocab.pkl, or vocab.bin, written by torch.save. pickles.py reads pickles without running them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from txl_tf.data.text.corpora import CORPORA
from txl_tf.data.vocabularies import ByteVocabulary, CharVocabulary, Vocabulary, WordVocabulary, XLNetVocabulary
from txl_tf.errors import InputError, naming
from txl_tf.published.pickles import PickledCall, as_dict, read_pickle
from txl_tf.published.tensor_files import open_binary
from txl_tf.published.torch_files import MAGIC, TENSORS, TorchFile
from txl_tf.storage.files import read_bytes, read_json, read_lines

_CORPUS = (
    r"(data_utils|vocabulary|utils\.vocabulary|__main__)\.(Corpus|Vocab)|collections\.(Counter|OrderedDict)"
    r"|numpy\.(core|_core)\.(multiarray|numeric)\.(_reconstruct|_frombuffer)|numpy\.(ndarray|dtype)|_codecs\.encode"
    r"|copy_reg\._reconstructor|copyreg\._reconstructor|(__builtin__|builtins)\.(object|set)"
)
_TOKENIZER = (
    r"sacremoses\.\w+\.Moses(PunctNormalizer|Tokenizer|Detokenizer)|re\._compile|(transformers\.)?tokenization_utils\.Trie"
    r"|(transformers\.tokenization_utils_base|tokenizers)\.AddedToken|transformers\.tokenization_utils\.Trie"
)
_PICKLED = f"{_CORPUS}|{_TOKENIZER}|{TENSORS}"
_REMEDY = "give the vocabulary that was published with the checkpoint"
NAMES = ("vocab.txt", "vocab.json", "vocab.bin", "vocab.pkl", "cache.pkl", "../data/cache.pkl")
"""The usual names of files for `read_vocabulary` next to a checkpoint."""


def read_vocabulary(path: str, dataset: str, options: Mapping[str, bool] | None = None) -> Vocabulary:
    """The Vocabulary of a published corpus, in a text file, JSON ({symbol: id} or a list), or one of those pickles.

    In the dataset "enwik8" symbols are byte values, in "text8" characters with "_" for the space, in all others words.
    InputError if the file has no list of symbols, or one that is not for this dataset; or for any options.
    """
    if options:
        raise InputError(f"{path} is not a SentencePiece model: {', '.join(options)} would have no effect")
    if not tf.io.gfile.exists(path):
        raise InputError(f"{path} not found: {_REMEDY}")
    if path.endswith(".json"):
        symbols = _by_id(read_json(path, _REMEDY), path)
    elif re.search(r"\.(pkl|pickle|bin|pt)$", path):
        symbols = _pickled_symbols(path)
    else:
        symbols = [line.split()[0] for line in read_lines(path, _REMEDY) if line.strip()]
    if not symbols or not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise InputError(f"{path} has no list of symbols: {_REMEDY}")
    try:
        if dataset == "enwik8":
            return ByteVocabulary([int(symbol) for symbol in symbols], dropped=[ord("\n")])
        if dataset == "text8":
            return CharVocabulary([" " if symbol == "_" else symbol for symbol in symbols])
        words = CORPORA[dataset].words if dataset in CORPORA else {}
        names = ("line_end", "both_ends", "unknown", "lower_case")
        return WordVocabulary(symbols, **{name: words[name] for name in names if name in words})
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{path} is not the vocabulary of {dataset}: {error}") from error


def read_xlnet_vocabulary(path: str, dataset: str, options: Mapping[str, bool] | None = None) -> XLNetVocabulary:
    """The vocabulary in XLNet's spiece.model; the dataset does not matter.

    The settings of the text clean-up are `options`, or else those of tokenizer_config.json in the same directory, in
    Hugging Face's form, or else those of the published models: case is kept, accents are removed. InputError if the
    file is not a SentencePiece model, or lacks XLNet's special pieces.
    """
    del dataset
    model, about = read_bytes(path, _REMEDY), tf.io.gfile.join(path.rpartition("/")[0], "tokenizer_config.json")
    told = read_json(about) if tf.io.gfile.exists(about) else {}
    names = {"do_lower_case": "lower_case", "keep_accents": "keep_accents", "remove_space": "remove_space"}
    if isinstance(told, dict):
        told = {name: value for name, value in told.items() if value is not None}  # null stands for the default
    if not isinstance(told, dict) or any(type(told.get(name, True)) is not bool for name in names):
        raise InputError(f"{about} does not belong to an XLNet's tokenizer: {', '.join(names)} must be true or false")
    told = {ours: told[theirs] for theirs, ours in names.items() if theirs in told}
    with naming(path):
        return XLNetVocabulary(model, **told | dict(options or {}))


def _pickled_symbols(path: str) -> Any:
    with open_binary(path) as file:
        is_of_torch = file.peek(2)[:2] == b"PK"
        root = None if is_of_torch else read_pickle(file, re.compile(_PICKLED), path)
    if is_of_torch or root == MAGIC:
        root = TorchFile(path, _PICKLED).root
    state: Any = root.state if isinstance(root, PickledCall) else as_dict(root)
    vocab = (state or {}).get("vocab")
    state = vocab.state if isinstance(vocab, PickledCall) else state  # a corpus contains its vocabulary
    if not isinstance(state, dict):
        return None
    # A tokenizer that transformers 4.35 loaded and saved again has only sym2idx.
    return state.get("idx2sym") or _by_id(as_dict(state.get("sym2idx")), path)


def _by_id(symbols: Any, path: str) -> Any:
    """The symbols of a list or of {symbol: id}, in the order of their ids."""
    if not isinstance(symbols, dict):
        return symbols
    ids = symbols.values()
    if not all(type(value) is int for value in ids) or sorted(ids) != list(range(len(symbols))):
        raise InputError(f"{path}: the ids are not 0, 1, 2, ..")
    return sorted(symbols, key=symbols.__getitem__)


def find_vocabulary(source: str, names: Sequence[str] = NAMES) -> str | None:
    """The path of the first file with one of these names next to a checkpoint, a file or a directory; or None."""
    folder = source if tf.io.gfile.isdir(source) else source.rpartition("/")[0]
    paths = [tf.io.gfile.join(folder, name) for name in names]
    return next((path for path in paths if tf.io.gfile.exists(path)), None)


VOCABULARIES: dict[str, tuple[Callable[..., Vocabulary], tuple[str, ...]]] = {
    "transformer_xl": (read_vocabulary, NAMES),
    "xlnet": (read_xlnet_vocabulary, ("spiece.model",)),
}
"""By family the function that reads a vocabulary, and the usual names of its files."""
