"""Published vocabularies keep their ids."""

import json
import pickle

import published_files as files
import pytest

from txl_tf.errors import InputError
from txl_tf.published.vocabularies import find_vocabulary, read_vocabulary

WORDS = ["<eos>", "the", ",", "<unk>", "café", "Zürich", "@-@"]
TEXT = "the café , Zürich\nelsewhere @-@"
IDS = [1, 4, 2, 5, 0, 3, 6]


def python_2_string(text):
    data = text.encode()
    return b"U" + bytes([len(data)]) + data  # SHORT_BINSTRING


@pytest.mark.parametrize("protocol", [0, 2, 3, 4])
def test_cache_pkl(tmp_path, protocol):
    (tmp_path / "cache.pkl").write_bytes(files.official_pickle(files.Corpus(WORDS), protocol))
    vocabulary = read_vocabulary(find_vocabulary(str(tmp_path)), "wt103")
    assert vocabulary.encode(TEXT).tolist() == IDS
    assert vocabulary.decode(IDS) == TEXT.replace("elsewhere", "<unk>")


def test_cache_pkl_of_python_2(tmp_path):
    """Bytes for strings, an object by way of copy_reg, a class of the script that was run."""
    words = b"(" + b"".join(map(python_2_string, WORDS)) + b"l"
    vocab = b"ccopy_reg\n_reconstructor\n(cvocabulary\nVocab\nc__builtin__\nobject\nNtR}U\x07idx2sym" + words + b"sb"
    (tmp_path / "cache.pkl").write_bytes(b"\x80\x02c__main__\nCorpus\n)\x81}U\x05vocab" + vocab + b"sb.")
    assert read_vocabulary(str(tmp_path / "cache.pkl"), "wt103").encode(TEXT).tolist() == IDS


@pytest.mark.parametrize("write", [files.write_torch, files.write_torch_legacy])
def test_vocab_bin(tmp_path, write):
    write(tmp_path / "vocab.bin", vars(files.Vocab(WORDS)), {})
    assert read_vocabulary(find_vocabulary(str(tmp_path)), "wt103").encode(TEXT).tolist() == IDS


def test_vocab_pkl_without_idx2sym(tmp_path):
    """As transformers 4.35 saves a tokenizer that was itself loaded."""
    state = vars(files.Vocab(WORDS)) | {"idx2sym": []}
    (tmp_path / "vocab.pkl").write_bytes(pickle.dumps(state))
    assert read_vocabulary(str(tmp_path / "vocab.pkl"), "wt103").encode(TEXT).tolist() == IDS


@pytest.mark.parametrize(
    "content", [WORDS, {word: i for i, word in sorted(enumerate(WORDS), key=lambda item: item[1])}]
)
def test_vocab_json(tmp_path, content):
    (tmp_path / "vocab.json").write_text(json.dumps(content))
    assert read_vocabulary(find_vocabulary(str(tmp_path)), "wt103").encode(TEXT).tolist() == IDS


def test_text_with_counts(tmp_path):
    (tmp_path / "vocab.txt").write_text("".join(f"{word} {9 - i}\n" for i, word in enumerate(WORDS)))
    assert read_vocabulary(str(tmp_path / "vocab.txt"), "wt103").encode(TEXT).tolist() == IDS


def test_bytes_characters_and_both_ends(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("32\n101\n195\n169\n63\n")
    assert read_vocabulary(str(path), "enwik8").encode("e é\n!").tolist() == [1, 0, 2, 3, 4]
    path.write_text("_\ne\nt\n")
    assert read_vocabulary(str(path), "text8").encode("te t").tolist() == [2, 1, 0, 2]
    path.write_text("<S>\n</S>\n<UNK>\nthe\n")
    assert read_vocabulary(str(path), "lm1b").encode("the\nthe cat").tolist() == [3, 0, 0, 3, 2]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("vocab.json", b"{"),
        ("vocab.json", b'{"a": 0, "b": 2}'),
        ("vocab.json", b'{"a": 0, "b": "x"}'),
        ("vocab.json", b"[1, 2]"),
        ("vocab.json", b"3"),
        ("vocab.txt", b"\xff"),
        ("vocab.txt", b""),
        ("vocab.txt", b"no_end_of_line\n"),
        ("vocab.pkl", pickle.dumps(["<eos>", "<unk>"])),
        ("vocab.pkl", pickle.dumps({"idx2sym": 3})),
        ("vocab.pkl", b""),
    ],
)
def test_no_vocabulary(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
        read_vocabulary(str(tmp_path / name), "wt103")


def test_a_missing_file(tmp_path):
    assert find_vocabulary(str(tmp_path)) is None
    with pytest.raises(InputError, match="not found"):
        read_vocabulary(str(tmp_path / "vocab.txt"), "wt103")
