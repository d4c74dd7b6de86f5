"""Not a test: archives as a source of text and as a table: right, damaged, hostile, and of other kinds."""

import bz2
import functools
import gzip
import io
import lzma
import os
import tarfile
import warnings
import zipfile

from campaign import damage
from campaign.case import Case

MANY = 80 << 20
"""More bytes than a small archive may hold."""


def cases():
    """Every case of archives."""
    yield from usual()
    yield from damaged()
    yield from hostile()
    yield from other_kinds()
    yield from tables()


def case(title, pack, flags=None, source="packed", **about):
    """A Case whose source, a file beside the text, is what `pack` makes of {name: content}."""
    return Case("prepare", f"archives: {title}", {"source": source} | (flags or {}),
                setup=functools.partial(put, pack=pack, source=source), **about)  # fmt: skip


def usual():
    """Archives that must be read like the files that they hold."""
    for name, pack in PACKS.items():
        yield case(f"{name} under a name that says nothing", pack, usual=True)
        yield case(f"{name} under its own name", pack, source=f"corpus.{name}", usual=True)
    for title, pack in {
        "a folder in a zip": functools.partial(zipped, form="corpus/{}"),
        "Windows' slashes in a zip": functools.partial(zipped, form="corpus\\{}"),
        "names upwards in a zip": functools.partial(zipped, form="../../../evil/{}"),
        "names from the root in a tar": functools.partial(tarred, form="/evil/{}"),
        "names upwards in a tar": functools.partial(tarred, form="../../{}"),
        "what a Mac adds": functools.partial(zipped, more={"__MACOSX/._train.txt": b"\0\5", ".DS_Store": b"\0"}),
        "a tar in a gz in a zip": lambda files: zipped({"all": gzip.compress(tarred(files))}),
        "packed files in a tar": lambda files: tarred({name: gzip.compress(data) for name, data in files.items()}),
        "packed files of every kind in a zip": lambda files: zipped(each_packed(files)),
        "links in a tar": functools.partial(tarred, links=True),
        "gz in two parts": lambda files: tarred({name: in_parts(data) for name, data in files.items()}),
    }.items():
        yield case(title, pack, usual=True)
    yield Case("prepare", "archives: each file packed in its way", setup=pack_each, usual=True)
    yield case("a file twice in a zip", functools.partial(zipped, twice=True), works=True)
    yield case("long names in a zip", functools.partial(zipped, form="a" * 300 + "/{}"))
    yield case("long names in a tar", functools.partial(tarred, form="b" * 300 + "{}"))
    yield case("names that are not UTF-8 in a tar", functools.partial(tarred, form="caf\udce9/{}"))
    yield case("line ends in names", functools.partial(zipped, form="a\nb {}"))


def damaged():
    """Every kind cut, with a flipped bit, and with something after its end."""
    for name, pack in PACKS.items():
        for kind in ("cut", "with a flipped bit"):
            plain = name == "tar" and kind != "cut"  # it has no checksum of what it holds
            yield case(f"{name} {kind}", functools.partial(damaged_pack, pack=pack, kind=kind), refused=not plain,
                       says="" if plain else "damaged")  # fmt: skip
        yield case(f"the first bytes of {name}", functools.partial(beginning, pack=pack), refused=True, says="packed")
    yield case("an empty zip", lambda files: zipped({}), refused=True, says="packed")
    yield case("an empty tar", lambda files: tarred({}), refused=True, says="packed")
    yield case("a zip of folders", lambda files: zipped({"a/": b"", "b/": b""}), refused=True, says="packed")
    yield case(
        "an encrypted zip", functools.partial(zip_that_says, field=6, value=b"\1\0"), refused=True, says="password"
    )
    yield case("a zip of an unknown method", functools.partial(zip_that_says, field=8, value=b"\x5d\0"),
               refused=True, says="packed")  # fmt: skip


def hostile():
    """Archives that hold far more than their size, or are packed again and again."""
    zeros = functools.partial(bytes, MANY)
    bombs = {
        "gz": lambda files: gzip.compress(zeros()),
        "bz2": lambda files: bz2.compress(zeros()),
        "xz": lambda files: lzma.compress(zeros()),
        "zip": lambda files: zipped({"train.txt": zeros()}),
        "tar.gz": lambda files: gzip.compress(tarred({"train.txt": zeros()})),
        "gz in gz": lambda files: gzip.compress(gzip.compress(zeros())),
        "many gz in zip": lambda files: zipped(dict.fromkeys(map(str, range(12)), gzip.compress(b"a" * (MANY // 10)))),
    }
    for name, pack in bombs.items():
        yield case(f"a bomb of {name}", pack, refused=True, says="times its own size")
    for name, pack in (("gz", gzip.compress), ("xz", lzma.compress), ("zip", lambda data: zipped({"a": data}))):
        deep = functools.partial(packed_again, pack=pack)
        yield case(f"{name} packed again and again", deep, refused=True, says="again and again")
    many = dict.fromkeys(map(str, range(20_000)), b"")
    yield case("20,000 empty files in a zip", lambda files: zipped(files | many), {"splits": "shares"})


def other_kinds():
    """Archives that are not read, and files that are not archives of text."""
    for magic, says in (
        (b"\x28\xb5\x2f\xfd", "a zstd archive"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (b"Rar!\x1a\7", "a rar archive"),
        (b"\x04\x22\x4d\x18", "a lz4 archive"),
        (b"\x1f\x9d\x90", "a compress"),
    ):
        yield case(says, functools.partial(with_magic, magic=magic), refused=True, says=says)
        inside = functools.partial(zipped, more={"train2.txt": magic + bytes(99)})
        yield case(f"{says} in a zip", inside, refused=True, says=says)
    for name in ("[Content_Types].xml", "mimetype"):
        yield case(f"a document with {name}", functools.partial(zipped, more={name: b"a"}), refused=True,
                   says="document")  # fmt: skip
    yield case("an image in a zip", functools.partial(zipped, more={"train.png": b"\x89PNG\r\n"}), refused=True,
               says="an image")  # fmt: skip
    yield case("an encoding in a zip", functools.partial(zipped, more={"train2.txt": b"caf\xe9"}), refused=True,
               says="train2.txt")  # fmt: skip


def tables():
    """Packed tables."""
    for name, pack in {"gz": gzip.compress, "two parts of gz": in_parts}.items():
        setup = functools.partial(pack_table, pack=pack, to="table.tsv.gz")
        yield Case("predict", f"archives: a table in {name}", {"input": "table.tsv.gz"}, setup=setup, usual=True)
    for title, pack in {
        "cut": lambda data: gzip.compress(data)[:-9],
        "not packed": bytes,
        "with more after its end": lambda data: gzip.compress(data) + b"more",
        "of 2 MB, cut": lambda data: gzip.compress(os.urandom(2 << 20))[:-9],
    }.items():
        setup = functools.partial(pack_table, pack=pack, to="table.tsv.gz")
        yield Case("predict", f"archives: a table in gz {title}", {"input": "table.tsv.gz"}, setup=setup, refused=True,
                   says="table.tsv.gz")  # fmt: skip
    packs = {"bz2": bz2.compress, "xz": lzma.compress, "zip": lambda data: zipped({"table.tsv": data})}
    for end, pack in packs.items():
        setup = functools.partial(pack_table, pack=pack, to=f"table.tsv.{end}")
        about = {"refused": True, "says": "table.tsv.zip"} if end == "zip" else {"usual": True}
        yield Case("predict", f"archives: a table in {end}", {"input": f"table.tsv.{end}"}, setup=setup, **about)
    for command, flag, name in (
        ("score", "input", "prompt.txt"),
        ("generate", "prompt_file", "prompt.txt"),
        ("answer", "input", "squad.json"),
        ("prepare_listed", "vocab_file", "list.txt"),
    ):
        setup = functools.partial(pack_file, name=name)
        refused = {"refused": True, "says": f"{name}.gz"}
        about = {"answer": {}, "generate": {"usual": True}}.get(command, refused)
        yield Case(command, f"archives: a packed {flag}", {flag: f"{name}.gz"}, setup=setup, **about)


def put(folder, pack, source):
    """Writes what `pack` makes of the text's files."""
    files = {path.name: path.read_bytes() for path in sorted((folder / "text").iterdir())}
    (folder / source).write_bytes(pack(files))


def zipped(files, form="{}", more=None, twice=False):
    """A zip of {name: content}, with names in this form, and of more files; `twice`: the first is there again."""
    packed = io.BytesIO()
    entries = [(form.format(name), data) for name, data in files.items()] + list((more or {}).items())
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that are there twice
        for name, data in entries + entries[:twice]:
            archive.writestr(name, data)
    return packed.getvalue()


def tarred(files, form="{}", links=False):
    """A tar of {name: content}, with names in this form; `links`: and of links, a pipe and a device."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(form.format(name))
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE)
        for kind in kinds if links else ():
            info = tarfile.TarInfo(f"of-type-{kind.decode()}")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    return packed.getvalue()


PACKS = {
    "zip": zipped,
    "tar": tarred,
    "tar.gz": lambda files: gzip.compress(tarred(files)),
    "tar.bz2": lambda files: bz2.compress(tarred(files)),
    "tar.xz": lambda files: lzma.compress(tarred(files)),
}
"""Functions that pack files, {name: content}, by the archive's kind."""


def in_parts(data):
    """A gzip file of two members, as `cat a.gz b.gz` gives."""
    return gzip.compress(data[:99]) + gzip.compress(data[99:])


def each_packed(files):
    """Files, each packed in another way."""
    packs = (gzip.compress, bz2.compress, lzma.compress)
    return {name: pack(data) for (name, data), pack in zip(files.items(), packs, strict=True)}


def pack_each(folder):
    """Packs each file of the source."""
    files = {path.name: path.read_bytes() for path in sorted((folder / "text").iterdir())}
    for (name, data), end in zip(each_packed(files).items(), ("gz", "bz2", "xz"), strict=True):
        (folder / "text" / name).unlink()
        (folder / "text" / f"{name}.{end}").write_bytes(data)


def damaged_pack(files, pack, kind):
    """A damaged archive."""
    return damage.CONTENTS[kind](pack(files))


def beginning(files, pack):
    """The first bytes of an archive, by which its kind is told."""
    return pack(files)[:300]


def packed_again(files, pack):
    """A text that is packed six times."""
    data = files["train.txt"]
    for _ in range(6):
        data = pack(data)
    return data


def zip_that_says(files, field, value):
    """A zip with another value in a field of its members' headers, at `field` bytes from a local one's start."""
    data = zipped(files)
    for magic, place in ((b"PK\3\4", field), (b"PK\1\2", field + 2)):
        data = magic.join(part[: place - 4] + value + part[place - 4 + len(value) :] if i else part
                          for i, part in enumerate(data.split(magic)))  # fmt: skip
    return data


def with_magic(files, magic):
    """A file that begins as an archive of another kind."""
    return magic + files["train.txt"]


def pack_table(folder, pack, to):
    """Packs the table."""
    (folder / to).write_bytes(pack((folder / "table.tsv").read_bytes()))


def pack_file(folder, name):
    """Packs a file that the command reads."""
    (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
