"""Not a test: published models given as they are, right, damaged and incomplete."""

import functools
import io
import zipfile

from campaign.case import Case


def cases():
    """Every case of published models."""
    no_room = {"TXL_TF_CACHE": "a file"}
    for command in ("evaluate_published", "generate_published", "fill_published", "finetune_published"):
        yield Case(command, "published: as it is", usual=True, says="imported, in")
        yield Case(command, "published: no room", refused=True, environment=no_room, says="TXL_TF_CACHE")
    for title, change in {
        "without a folder": lambda name, data: (name.rpartition("/")[2], data),
        "behind two folders": lambda name, data: (f"a/b/{name}", data),
    }.items():
        yield changed(title, change, usual=True)
    for title, lacking in {
        "without settings": "xlnet_config.json",
        "without a vocabulary": "spiece.model",
        "without weights": "xlnet_model.ckpt.data-00000-of-00001",
        "without an index": "xlnet_model.ckpt.index",
        "without anything": "",
    }.items():
        yield changed(title, functools.partial(without, lacking=lacking), refused=True, says="xlnet.zip")
    for title, name in (("no settings", "xlnet_config.json"), ("no vocabulary", "spiece.model")):
        spoil = functools.partial(spoilt, spoiled=name)
        yield changed(f"with {title}, but a text", spoil, refused=True, says="xlnet.zip")
    twice = functools.partial(in_zip, inner="xlnet.zip")
    yield Case("fill_published", "published: a zip in a zip", setup=twice, refused=True, says="xlnet.zip")
    other = functools.partial(in_zip, inner="a file")
    yield Case("fill_published", "published: a zip of something else", setup=other, refused=True, says="xlnet.zip")
    yield Case("generate_published", "published: a model's own folder", {"model_dir": "huggingface/config.json"},
               refused=True, says="huggingface/config.json")  # fmt: skip


def changed(title, change, **about):
    """A Case whose zip has other members: change(name, content) -> those of a member, None: it is left out."""
    setup = functools.partial(pack_again, change=change)
    return Case("fill_published", f"published: {title}", setup=setup, **about)


def without(name, data, lacking):
    return None if name.endswith(lacking) else (name, data)


def spoilt(name, data, spoiled):
    return name, b"nothing to see\n" if name.endswith(spoiled) else data


def pack_again(folder, change):
    """Writes the zip with changed members."""
    with zipfile.ZipFile(folder / "xlnet.zip") as packed:
        members = [change(name, packed.read(name)) for name in packed.namelist()]
    with zipfile.ZipFile(folder / "xlnet.zip", "w") as packed:
        for member in filter(None, members):
            packed.writestr(*member)


def in_zip(folder, inner):
    """Writes the zip with a file in it."""
    outer = io.BytesIO()
    with zipfile.ZipFile(outer, "w") as packed:
        packed.write(folder / inner, inner)
    (folder / "xlnet.zip").write_bytes(outer.getvalue())
