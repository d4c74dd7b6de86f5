import os
import sysconfig

import pytest

from txl_tf.data.text import blocks, sources
from txl_tf.errors import InputError


def texts(source, **options):
    joined = dict.fromkeys(sources.SPLITS, b"")
    for split, block in source.blocks(**options):
        joined[split] += block
    return joined


@pytest.fixture(params=[7, 64, 1 << 20])
def block_bytes(request, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", request.param)


def test_the_standard_library():
    source = sources.standard_library()
    root = sysconfig.get_path("stdlib")
    inside = {piece.path[len(root) + 1 :]: piece.split for piece in source.pieces}
    assert {"argparse.py", "json/decoder.py", "asyncio/events.py"} <= set(inside)
    folders = {folder for path in inside for folder in path.split("/")[:-1]}
    assert folders.isdisjoint({"test", "tests", "idle_test", "site-packages", "__pycache__"})
    counts = [list(inside.values()).count(split) for split in sources.SPLITS]
    assert counts[0] > 8 * counts[1] > 0
    assert counts[0] > 8 * counts[2] > 0
    assert inside["argparse.py"] == sources.drawn_split("argparse.py")  # wherever the library is
    assert source == sources.standard_library()


def test_links_in_a_circle_and_what_is_no_file_are_refused(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "more").mkdir()
    (tmp_path / "text" / "a").write_text("a")
    (tmp_path / "more" / "b").write_text("b")
    (tmp_path / "text" / "more").symlink_to(tmp_path / "more")
    (tmp_path / "text" / "again").symlink_to(tmp_path / "more")
    found = sources.find_files(str(tmp_path / "text"))
    assert [path.removeprefix(f"{tmp_path}/text/") for path in found] == ["a", "again/b", "more/b"]
    (tmp_path / "more" / "back").symlink_to(tmp_path / "text")
    with pytest.raises(InputError, match="is a link to a directory above it"):
        sources.find_files(str(tmp_path / "text"))
    (tmp_path / "more" / "back").unlink()
    os.mkfifo(tmp_path / "more" / "pipe")
    with pytest.raises(InputError, match=r"more/pipe is a pipe, not a file: remove it"):
        sources.find_files(str(tmp_path / "text"))


def test_blocks_hold_every_byte_in_order(tmp_path, block_bytes):
    content = ("line one\nline two, which is rather long\n\n" * 20 + "x" * 300 + "日本語é" * 30).encode()
    (tmp_path / "a").write_bytes(content)
    source = sources.TextSource((sources.Piece("train", str(tmp_path / "a")),))
    found = [block for _, block in source.blocks()]
    assert b"".join(found) == content
    for block in found:
        block.decode()  # no character is cut
    assert texts(source, end_lines=True)["train"] == content + b"\n"


def test_documents_end_in_a_blank_line(tmp_path, block_bytes):
    for name, text in {"a": "one\n\n\n\n\n\n\n\n\n\n\n", "b": "two", "c": "", "d": "\n\nthree\n\nfour\n"}.items():
        (tmp_path / name).write_text(text)
    pieces = tuple(sources.Piece("train", str(tmp_path / name)) for name in "abcd")
    joined = texts(sources.TextSource(pieces, "file"))["train"]
    assert joined == b"one\n\ntwo\n\n\n\nthree\n\nfour\n\n"


def test_blank_lines_part_documents(tmp_path, block_bytes):
    documents = [f"document {i}\nits second line" for i in range(200)]
    (tmp_path / "a").write_bytes("\n\n\n".join(documents).replace("\n", "\r\n").encode())
    joined = texts(sources.text_files(str(tmp_path / "a"), "blank_line"))
    for split in sources.SPLITS:
        expected = [text for i, text in enumerate(documents) if sources.drawn_split(f"a#{i}") == split]
        assert joined[split].decode() == "".join(text + "\n\n" for text in expected)
        assert expected


def test_files_named_for_splits(tmp_path):
    for name in ("train-1.txt", "train-2.txt", "valid.txt", "test.txt"):
        (tmp_path / name).write_text(name)
    assert texts(sources.text_files(str(tmp_path))) == {
        "train": b"train-1.txt\n\ntrain-2.txt\n\n",
        "valid": b"valid.txt\n\n",
        "test": b"test.txt\n\n",
    }


def test_many_files_are_drawn_by_their_path_inside_the_folder(tmp_path):
    for folder in ("one", "two/deeper"):
        for i in range(60):
            (tmp_path / folder / "sub").mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / "sub" / f"{i}.md").write_text(str(i))
    splits = [[p.split for p in sources.text_files(str(tmp_path / folder)).pieces] for folder in ("one", "two/deeper")]
    assert splits[0] == splits[1]
    assert set(splits[0]) == set(sources.SPLITS)


def test_few_files_are_cut_at_lines_and_each_is_in_every_split(tmp_path):
    for name, word in (("a", "english"), ("b", "deutsch")):
        (tmp_path / f"{name}.txt").write_text("".join(f"{word} {i:05d}\n" for i in range(1000)))
    source = sources.text_files(str(tmp_path / "*.txt"))
    joined = texts(sources.TextSource(source.pieces))
    for word in ("english", "deutsch"):
        lines = [[line for line in text.decode().splitlines() if word in line] for text in joined.values()]
        assert [len(part) for part in lines] == [900, 50, 50]
        assert [line for part in lines for line in part] == [f"{word} {i:05d}" for i in range(1000)]
    assert sources.split_contents(source.split_sizes())["valid"] == {
        "files": 2,
        "first": ["a.txt", "b.txt"],
        "bytes": 2 * 50 * 14,
    }


def test_a_text_without_lines_is_cut_between_characters(tmp_path):
    (tmp_path / "a.txt").write_text("日" * 1000)
    joined = texts(sources.text_files(str(tmp_path / "a.txt")))
    assert sum(len(text.decode().strip()) for text in joined.values()) == 1000


def test_a_line_longer_than_a_share_is_cut(tmp_path):
    (tmp_path / "a.txt").write_text(("日" * 3000 + "\n") * 4)
    joined = texts(sources.text_files(str(tmp_path / "a.txt")))
    assert all(len(text.decode()) > 500 for text in joined.values())


def test_what_is_not_utf8_is_named_with_its_place(tmp_path, block_bytes):
    (tmp_path / "a").write_bytes(b"ab\n" * 30 + b"\xff\n")
    source = sources.TextSource((sources.Piece("train", str(tmp_path / "a")),))
    with pytest.raises(
        InputError, match=r"a is not UTF-8 at byte 90: convert it or, with --dataset=text, give its --encoding"
    ):
        texts(source)
    assert len(texts(source, utf8=False)["train"]) == 92


def test_nothing_there(tmp_path):
    for missing in (tmp_path / "*.txt", tmp_path, tmp_path / "a"):
        with pytest.raises(InputError, match="no text found at"):
            sources.text_files(str(missing))


@pytest.mark.parametrize("characters", range(1, 30))
def test_short_texts_are_cut_between_characters(tmp_path, characters):
    text = ("日本語é" * characters)[:characters]
    (tmp_path / "t.txt").write_text(text, encoding="utf-8")
    blocks = sources.text_files(str(tmp_path / "t.txt"), splits="shares").blocks()
    assert b"".join(block.rstrip(b"\n") for _, block in blocks).decode() == text
