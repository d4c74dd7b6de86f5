"""Archives, encodings and binary files as a source of text."""

import bz2
import gzip
import io
import lzma
import os
import pathlib
import tarfile
import zipfile

import processes
import pytest

from txl_tf.data.text import own_files, sources
from txl_tf.errors import InputError

ROOT = pathlib.Path(__file__).parents[3]
TEXT = b"".join(b"line %d of this text\n" % i for i in range(200))


def tar(names):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(TEXT)
            archive.addfile(info, io.BytesIO(TEXT))
    return packed.getvalue()


def zipped(names):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, TEXT)
    return packed.getvalue()


def read(source, tmp_path, **options):
    text = sources.text_files(str(source), work_dir=str(tmp_path / "work"), **options)
    joined = dict.fromkeys(sources.SPLITS, b"")
    for split, block in sources.TextSource(text.pieces).blocks():
        joined[split] += block
    return joined


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_text_is_read_whatever_its_name(pack, tmp_path):
    (tmp_path / "corpus.txt").write_bytes(pack(TEXT))
    assert b"".join(read(tmp_path / "corpus.txt", tmp_path).values()) == TEXT


@pytest.mark.parametrize("pack", [tar, zipped, lambda names: gzip.compress(tar(names))])
def test_members_belong_to_the_splits_of_their_names(pack, tmp_path):
    (tmp_path / "all.bin").write_bytes(pack(["a/train.txt", "a/dev.txt", "../a/test.txt", "__MACOSX/a/._train.txt"]))
    assert read(tmp_path / "all.bin", tmp_path) == dict.fromkeys(sources.SPLITS, TEXT)
    assert not any("MACOSX" in path or "train" in path for path in os.listdir(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x28\xb5\x2f\xfd" + TEXT, "is a zstd archive, which is not read here: unpack it"),
        (b"\x04\x22\x4d\x18" + TEXT, "is a lz4 archive, which is not read here: unpack it"),
        (b"\x1f\x9d" + TEXT, r"is a compress \(.Z\) archive, which is not read here: unpack it"),
        (b"%PDF-1.4" + TEXT, "is a PDF, not text: remove it from the source, or give --binary"),
        (
            b"\0" * 300 + TEXT,
            r"is a binary file \(or UTF-16, .*\): \d+ % of its bytes are NUL or other control characters, not",
        ),
        (TEXT * 100 + bytes(range(256)) * 2000, "is a binary file"),
        ("only NUL bytes show it\n".encode("utf-16-le"), "is UTF-16-LE text: give --encoding=utf-16-le"),
        ("größe\n".encode("utf-32-be"), "is UTF-32-BE text: give --encoding=utf-32-be"),
        (TEXT.decode().encode("utf-16"), "is UTF-16 text: give --encoding=utf-16"),
        (gzip.compress(TEXT)[:-10], "is damaged"),
        (zipped(["[Content_Types].xml"]), "is a document of an office program"),
    ],
)
def test_what_is_not_text_is_named(content, message, tmp_path):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path / "file", tmp_path)
    assert str(caught.value).startswith("file ")


def test_members_are_read_whatever_their_names_and_told_by_them(tmp_path):
    """Names that are not UTF-8, or longer than a file's can be; a message names no temporary folder."""
    (tmp_path / "all.tar").write_bytes(tar(["caf\udce9.train", "d" * 300 + ".dev", "caf\udce9/test"]))
    assert read(tmp_path / "all.tar", tmp_path) == dict.fromkeys(sources.SPLITS, TEXT)
    (tmp_path / "all.zip").write_bytes(zip_of(**{"a/one.txt": TEXT, "a/two.txt": b"caf\xe9"}))
    with pytest.raises(InputError, match=r"^all/a/two.txt is not UTF-8 at byte 3"):
        read(tmp_path / "all.zip", tmp_path / "other")


def test_an_empty_file_is_no_binary_file(tmp_path):
    for name, content in (("train.txt", TEXT), ("train2.txt", b""), ("dev.txt", TEXT), ("test.txt", TEXT)):
        (tmp_path / name).write_bytes(content)
    assert read(tmp_path, tmp_path) == dict.fromkeys(sources.SPLITS, TEXT)


def test_binary_files_are_read_on_request(tmp_path):
    (tmp_path / "file").write_bytes(b"\0" * 300 + TEXT)
    assert b"".join(read(tmp_path / "file", tmp_path, binary=True).values()) == b"\0" * 300 + TEXT


@pytest.mark.parametrize("encoding", [None, "cp1252"])
def test_a_text_with_a_few_odd_bytes_is_read(encoding, tmp_path):
    text = b"a\0b \x01\x1b[0m\f" + TEXT
    (tmp_path / "file").write_bytes(text)
    assert b"".join(read(tmp_path / "file", tmp_path, encoding=encoding).values()) == text


@pytest.mark.parametrize("name", ["test.zip", "train.tar", "dev/test.zip"])
def test_the_name_of_the_only_archive_is_no_split(name, tmp_path):
    folder, members = tmp_path / "text", ["a.txt", "b.txt"]
    (folder / "dev").mkdir(parents=True)
    (folder / name).write_bytes(zipped(members) if name.endswith("zip") else tar(members))
    for source in (folder / name, folder):
        text = sources.text_files(str(source), work_dir=str(tmp_path / "work" / source.name))
        assert [piece.split for piece in text.pieces] == [*sources.SPLITS] * 2 and text.split_rule == "shares"


def test_an_archive_that_holds_far_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(own_files, "FREE", 1000)
    (tmp_path / "file.gz").write_bytes(gzip.compress(b"a" * 1_000_000))
    with pytest.raises(InputError, match=r"file\.gz holds more than 100 times its own size"):
        read(tmp_path / "file.gz", tmp_path)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "latin-1"])
def test_older_files_are_converted(encoding, tmp_path):
    text = "caf\u00e9 au lait\r\n" * 100
    (tmp_path / "file").write_bytes(text.encode(encoding))
    assert b"".join(read(tmp_path / "file", tmp_path, encoding=encoding).values()).decode() == text


def zip_of(**members):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def test_archives_inside_archives_are_told_by_their_first_bytes_too(tmp_path):
    (tmp_path / "all.zip").write_bytes(zip_of(train=gzip.compress(TEXT), dev=gzip.compress(tar(["a"])), test=TEXT))
    assert read(tmp_path / "all.zip", tmp_path) == dict.fromkeys(sources.SPLITS, TEXT)
    (tmp_path / "zstd.zip").write_bytes(zip_of(member=b"\x28\xb5\x2f\xfd" + TEXT))
    with pytest.raises(InputError, match=r"zstd/member is a zstd archive"):
        read(tmp_path / "zstd.zip", tmp_path / "other")


def test_many_small_archives_inside_one_share_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(own_files, "FREE", 100_000)
    (tmp_path / "all.zip").write_bytes(zip_of(**{f"m{i}": gzip.compress(b"a" * 90_000) for i in range(4)}))
    with pytest.raises(InputError, match=r"all.zip holds more than 100 times its own size"):
        read(tmp_path / "all.zip", tmp_path)


def test_what_is_packed_again_and_again_is_refused(tmp_path):
    content = TEXT
    for _ in range(4):
        content = gzip.compress(content)
    (tmp_path / "file.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"file.gz is packed again and again"):
        read(tmp_path / "file.gz", tmp_path)


def test_an_archive_without_files_holds_no_text(tmp_path):
    (tmp_path / "empty.zip").write_bytes(zip_of())
    with pytest.raises(InputError, match=r"empty.zip holds no text"):
        read(tmp_path / "empty.zip", tmp_path)


def test_text_that_is_not_in_the_encoding_that_was_given(tmp_path):
    (tmp_path / "file").write_bytes("caf\u00e9\n".encode("cp1252") * 100)
    with pytest.raises(InputError, match="file is not utf-8"):
        read(tmp_path / "file", tmp_path, encoding="utf-8")


def test_half_a_character_at_the_end_is_not_dropped(tmp_path):
    (tmp_path / "file").write_bytes("text\n".encode("utf-16") + b"x")
    with pytest.raises(InputError, match="file is not utf-16"):
        read(tmp_path / "file", tmp_path, encoding="utf-16")


@pytest.mark.parametrize("encoding", ["nope", "undefined", "utf-16", "unicode_escape", "base64", "rot13", "punycode"])
def test_a_wrong_encoding_is_one_line(encoding, tmp_path):
    (tmp_path / "file").write_bytes(b"\xff\xfe\x00\xd8odd")
    with pytest.raises(InputError, match=f"{encoding} .*encoding|--encoding={encoding} is unknown"):
        read(tmp_path / "file", tmp_path, encoding=encoding)


def test_the_command_leaves_nothing_unpacked(tmp_path):
    (tmp_path / "corpus.txt.gz").write_bytes(gzip.compress(TEXT))
    command = ["scripts/prepare_data.py", "--dataset=text", f"--source={tmp_path}/corpus.txt.gz"]
    done = processes.run([*command, f"--data_dir={tmp_path}/data", "--vocab=words"], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()[1:4]
    assert all(line.endswith("bytes of corpus.txt") for line in lines)
    sizes = [int(line.split()[3].replace(",", "")) for line in lines]
    assert sum(sizes) == len(TEXT)
    assert not list((tmp_path / "data").glob(".txl_tf_work*"))


def test_the_command_reads_an_archive_named_for_a_split_and_refuses_what_is_no_text(tmp_path):
    (tmp_path / "test.zip").write_bytes(zipped(["a.txt", "b.txt"]))
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 100)
    command = ["scripts/prepare_data.py", "--dataset=text", f"--data_dir={tmp_path}/data"]
    done = processes.run([*command, f"--source={tmp_path}/test.zip"], cwd=ROOT)
    assert done.returncode == 0 and "bytes of 2 files: a.txt, b.txt" in done.stdout, done.stderr
    for flags, said in (
        (
            [f"--source={tmp_path}/binary"],
            "error: binary is a binary file (or UTF-16, which needs its --encoding): 9 %",
        ),
        ([f"--source={tmp_path}/test.zip", "--encoding=unicode_escape"], "error: --encoding=unicode_escape is unknown"),
    ):
        done = processes.run([*command, "--overwrite", *flags], cwd=ROOT)
        assert done.returncode == 1 and done.stderr.startswith(said) and done.stderr.count("\n") == 1
