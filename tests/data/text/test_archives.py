import gzip
import io
import os
import pathlib
import tarfile
import zipfile

import pytest

from txl_tf.data.text import archives
from txl_tf.errors import InputError

WANTED = r"(train|test)\.txt"


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)


def make_tgz(path, members):
    with tarfile.open(path, "w:gz") as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize(("make", "name"), [(make_zip, "a.zip"), (make_tgz, "a.tgz")])
def test_only_wanted_members_come_out_and_only_into_the_directory(tmp_path, make, name):
    members = {"top/train.txt": b"train", "../../test.txt": b"test", "/etc/other.txt": b"x", "../train.txt.sh": b"x"}
    make(tmp_path / name, members)
    inside = tmp_path / "a" / "b"
    paths = archives.extract(str(tmp_path / name), WANTED, str(inside))
    assert paths == [str(inside / "test.txt"), str(inside / "train.txt")]
    assert (inside / "test.txt").read_bytes() == b"test"
    assert sorted(os.listdir(tmp_path)) == ["a", name]
    assert os.listdir(tmp_path / "a") == ["b"]


def test_links_in_a_tar_are_not_followed(tmp_path):
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as file:
        info = tarfile.TarInfo("train.txt")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(info)
    assert archives.extract(str(tmp_path / "a.tgz"), WANTED, str(tmp_path / "out")) == []


def test_gzip(tmp_path):
    with gzip.open(tmp_path / "train.txt.gz", "wb") as file:
        file.write(b"text")
    (path,) = archives.extract(str(tmp_path / "train.txt.gz"), WANTED, str(tmp_path / "out"))
    with open(path, "rb") as file:
        assert file.read() == b"text"


@pytest.mark.parametrize(("make", "name"), [(make_zip, "a.zip"), (make_tgz, "a.tgz")])
@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_damaged_archives(tmp_path, make, name, damage):
    make(tmp_path / name, {"train.txt": os.urandom(5000)})
    data = bytearray((tmp_path / name).read_bytes())
    if damage == "cut":
        del data[3000:]
    else:
        data[2000] ^= 255
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=rf"{name} is damaged"):
        archives.extract(str(tmp_path / name), WANTED, str(tmp_path / "out"))
    assert not (tmp_path / "out" / "train.txt").exists()


@pytest.mark.parametrize("kind", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, "gz"])
def test_damage_to_other_compressions_is_named_too(tmp_path, kind):
    path, text = tmp_path / ("train.txt.gz" if kind == "gz" else "a.zip"), os.urandom(3000)
    if kind == "gz":
        path.write_bytes(gzip.compress(text))
    else:
        with zipfile.ZipFile(path, "w", kind) as file:
            file.writestr("train.txt", text)
    whole = path.read_bytes()
    for place in range(100, 1000, 60):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with pytest.raises(InputError, match=rf"{path.name} is damaged"):
            archives.extract(str(path), WANTED, str(tmp_path / "out"))


def test_two_members_of_one_name(tmp_path):
    make_zip(tmp_path / "a.zip", {"a/train.txt": b"1", "b/train.txt": b"2"})
    with pytest.raises(InputError, match=r"holds train.txt twice"):
        archives.extract(str(tmp_path / "a.zip"), WANTED, str(tmp_path / "out"))


def test_a_protected_file_of_a_zip_is_refused_when_it_is_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", b"read")
        archive.writestr("b.txt", b"secret")
        archive.getinfo("b.txt").flag_bits |= 1
    path = str(tmp_path / "a.zip")
    (found,) = archives.extract(path, r"a\.txt", str(tmp_path / "out"))
    assert pathlib.Path(found).read_bytes() == b"read"
    with pytest.raises(InputError, match=r"a\.zip is protected by a password: unpack it$"):
        archives.extract(path, r"b\.txt", str(tmp_path / "out"))
