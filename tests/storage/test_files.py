"""Files that are written completely or not at all, and what is said of those that cannot be read."""

import hashlib
import os
import stat
import tempfile

import pytest
import tensorflow as tf

from txl_tf.errors import InputError
from txl_tf.storage import files
from txl_tf.storage.local_files import without_links_back


def test_what_is_written_is_read(tmp_path):
    path = str(tmp_path / "file")
    files.write_atomically(path, "für\u2028alle\nzwei\n")
    assert files.read_text(path) == "für\u2028alle\nzwei\n"
    assert files.read_lines(path) == ["für\u2028alle", "zwei"]
    files.write_atomically(path, b"[1, 2]")
    assert files.read_json(path) == [1, 2] and files.read_bytes(path) == b"[1, 2]"
    assert files.digest(path, "md5") == hashlib.md5(b"[1, 2]").hexdigest()
    files.write_atomically(path, "")
    assert files.read_lines(path) == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_file_that_could_not_be_finished_leaves_the_old_one(tmp_path):
    path = str(tmp_path / "file")
    files.write_atomically(path, "old")

    def interrupted():
        with files.atomic_writer(path) as file:
            file.write(b"new and lon")
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        interrupted()
    assert files.read_text(path) == "old" and [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_result_that_cannot_be_written_stands_elsewhere(tmp_path, monkeypatch, capsysbinary):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "file").write_text("mine")
    for path, kept in (("/dev/full", "full"), (f"{tmp_path}/file/o.jsonl", "o.jsonl"), ("/dev/full", "full_2")):
        with pytest.raises(
            InputError, match=rf"^{path} cannot be written: .*; the results stand in .*/temporary/{kept}$"
        ):
            files.write_result(path, kept)
        assert (tmp_path / "temporary" / kept).read_text() == kept
    assert (tmp_path / "file").read_text() == "mine"
    monkeypatch.setattr(tempfile, "tempdir", f"{tmp_path}/file/none")
    with pytest.raises(InputError, match=r"the results stand on standard output$"):
        files.write_result("/dev/full", "a text")
    assert capsysbinary.readouterr().out == b"a text"


@pytest.mark.parametrize(
    ("content", "read", "message"),
    [
        (None, files.read_bytes, "cannot be read .*No such file.*: copy it again$"),
        (b"\xff", files.read_lines, "is not UTF-8 text .*: copy it again$"),
        (b"a\n\xff", files.read_lines, "line 2 is not UTF-8 text .*: copy it again$"),
        (b"{", files.read_json, "is not JSON .*: copy it again$"),
        (os.mkfifo, files.read_bytes, "is a pipe, not a file: copy it again$"),
        (os.mkdir, files.read_text, "is a directory, not a file: copy it again$"),
        (lambda path: os.symlink("file", path), files.read_json, "cannot be read .*symbolic links.*: copy it again$"),
    ],
)
def test_what_cannot_be_read_gets_one_line(tmp_path, content, read, message):
    if callable(content):
        content(tmp_path / "file")
    elif content is not None:
        (tmp_path / "file").write_bytes(content)
    with pytest.raises(InputError, match=message) as raised:
        read(str(tmp_path / "file"), "copy it again")
    assert "\n" not in str(raised.value) and str(tmp_path / "file") in str(raised.value)


def test_a_link_and_back_is_where_the_system_says(tmp_path, monkeypatch):
    """TensorFlow takes such a path for another, and reads and writes there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "far" / "inside").mkdir(parents=True)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("far/inside")
    assert without_links_back("link/../new/a.txt") == f"{tmp_path}/far/new/a.txt"
    assert without_links_back("folder/../link/../new/") == f"{tmp_path}/far/new"
    assert without_links_back("link/..") == f"{tmp_path}/far"
    for same in ("new", "folder/../new/", "link/none/../a", "..", "none/../a", "gs://link/../a", "link/..a", ""):
        assert without_links_back(same) == same


def test_a_device_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.require_new(str(pipe), "output")
    files.write_atomically(str(pipe), "a text")
    assert os.read(reader, 100) == b"a text" and pipe.is_fifo()
    os.close(reader)
    files.require_new("/dev/full", "output")
    with pytest.raises((OSError, tf.errors.OpError), match="No space left on device"):
        files.write_atomically("/dev/full", "a text")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode) and not os.path.exists("/dev/full.partial")


def test_missing_folders_are_made_for_a_file(tmp_path):
    path = tmp_path / "a" / "b" / "file"
    files.require_new(str(path), "output")
    assert not path.parent.exists()
    files.write_atomically(str(path), "a text")
    assert path.read_text() == "a text"


def test_a_folder_that_cannot_be_written_to_is_told_before(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: path != str(tmp_path))
    with pytest.raises(InputError, match=f"^{tmp_path} cannot be written to: give another --output$"):
        files.require_new(str(tmp_path / "missing" / "file"), "output")


def test_what_is_new(tmp_path):
    """A missing file or directory, and an empty one; and nothing is replaced by the other kind."""
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "circle").symlink_to("circle")
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", "empty", "pipe"):
        files.require_new(str(tmp_path / name), "output")
    for name in ("missing", "folder"):
        files.require_new_directory(str(tmp_path / name), "export_dir")
    for check, flag, name, message in [
        (
            files.require_new,
            "output",
            "file",
            "file exists and would be overwritten: remove it, or give a new --output",
        ),
        (files.require_new, "output", "folder", "folder is a directory: give a new file as --output"),
        (files.require_new, "output", "file/below", "--output=.*file/below: Not a directory; give another place"),
        (files.require_new, "output", 300 * "a", "aaa: File name too long; give another place"),
        (files.require_new, "output", "circle/below", "Too many levels of symbolic links; give another place"),
        (files.require_new, "output", "circle", "circle is a link to nothing: remove it, or give a new --output"),
        (files.require_new_directory, "export_dir", "", " is not empty: give a new --export_dir"),
        (files.require_new_directory, "export_dir", "empty", "empty is not a directory: give a new --export_dir"),
        (files.require_new_directory, "export_dir", "pipe", "pipe is not a directory: give a new --export_dir"),
        (
            files.require_new_directory,
            "export_dir",
            "circle",
            "circle is a link to nothing: remove it, or give a new --export_dir",
        ),
    ]:
        with pytest.raises(InputError, match=f"{message}$"):
            check(str(tmp_path / name), flag)
