"""Not a test: text, lists, prompts, tables and questions in other encodings and wrong ones, and files without text."""

import functools

from campaign.case import Case

FITTING = (
    "cp1252",
    "latin-1",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "utf-32",
    "utf-8",
    "utf-8-sig",
    "mac_roman",
    "cp850",
)
"""Encodings that have all letters of the world's text."""
EASTERN = {
    "shift_jis": "日本の言葉",
    "euc_jp": "日本の言葉",
    "gb18030": "中国的话",
    "big5": "中國的話",
    "koi8-r": "слова",
}
NOT_OF_TEXT = (
    "none",
    "undefined",
    "hex",
    "base64",
    "rot13",
    "zlib",
    "mbcs",
    "a" * 50,
    "\x7f",
    "../cp1252",
    "cp1252 x",
)
"""Names that are not encodings of text here."""
ODD = ("idna", "punycode", "unicode_escape", "raw_unicode_escape", "utf-7")
"""Encodings that Python has and nobody's files."""
NO_TEXT = {
    "a PDF": b"%PDF-1.7\n" + bytes(range(256)) * 20,
    "an image": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20,
    "a photograph": b"\xff\xd8\xff\xe0" + bytes(range(256)) * 20,
    "an animation": b"GIF89a" + bytes(range(256)) * 20,
    "NUL bytes": b"some text\0\0\n" * 100,
    "a program": b"\x7fELF" + bytes(500),
}
"""Files that are not text. The message must name them."""


def cases():
    """Every case of encodings."""
    yield from of_text()
    yield from of_tables()
    yield from of_other_files()


def of_text():
    """A source of text."""
    for encoding in FITTING:
        yield text_case(f"text in {encoding}", encoding, {"encoding": encoding}, usual=True)
    for encoding, words in EASTERN.items():
        setup = functools.partial(write_text, data=(words * 10 + "\n").encode(encoding) * 100)
        yield Case("prepare", f"encodings: text in {encoding}", {"encoding": encoding}, setup=setup, works=True,
                   check=functools.partial(knows, word=words * 10))  # fmt: skip
    for encoding in ("cp1252", "utf-16", "utf-16-le", "utf-32", "mac_roman"):
        yield text_case(f"text in {encoding}, which is not said", encoding, {}, refused=True, says="--encoding")
    yield text_case("text with a byte order mark", "utf-8-sig", {})
    for encoding, claimed in (("utf-8", "utf-16"), ("utf-8", "ascii"), ("utf-8", "utf-32"), ("cp1252", "utf-8"),
                              ("utf-16", "utf-8"), ("cp1252", "shift_jis"), ("latin-1", "utf-16")):  # fmt: skip
        yield text_case(f"text in {encoding} as {claimed}", encoding, {"encoding": claimed}, refused=True,
                        says="test.txt")  # fmt: skip
    for encoding in NOT_OF_TEXT:
        flags = {"encoding": encoding}
        yield text_case(f"--encoding={encoding[:20]}", "utf-8", flags, refused=True, says="--encoding=")
    for encoding in ODD:
        yield text_case(f"--encoding={encoding}", "utf-8", {"encoding": encoding})
    for title, data in NO_TEXT.items():
        setup = functools.partial(write_text, data=data)
        yield Case("prepare", f"encodings: {title}", setup=setup, refused=True, says="test.txt is")
        flags = {"binary": None, "vocab": "bytes", "min_count": False}
        yield Case("prepare", f"encodings: {title} with --binary", flags, setup=setup, works=True)
        yield Case("prepare", f"encodings: {title} with --binary, words", {"binary": None}, setup=setup)
    setup = functools.partial(write_text, data=b"some text\n" * 100 + b"\0\n")
    yield Case("prepare", "encodings: one NUL byte", setup=setup, works=True)
    for dataset in ("enwik8", "wt2"):
        flags = {"dataset": dataset, "encoding": "cp1252", "vocab": False, "min_count": False}
        yield Case("prepare", f"encodings: of {dataset}", flags, refused=True, says="--encoding")


def of_tables():
    """Tables and questions."""
    for encoding in FITTING:
        setup = functools.partial(recode, name="table.tsv", encoding=encoding)
        yield Case("predict", f"encodings: table in {encoding}", {"encoding": encoding}, setup=setup, usual=True)
        setup = functools.partial(recode, name="squad.json", encoding=encoding)
        yield Case("answer", f"encodings: questions in {encoding}", {"encoding": encoding}, setup=setup, works=True)
    for encoding in ("utf-16", "utf-8-sig"):
        setup = functools.partial(recode, name="table.tsv", encoding=encoding)
        yield Case("predict", f"encodings: table in {encoding}, which is not said", setup=setup, usual=True)
        yield Case("finetune", f"encodings: table in {encoding}, which is not said", setup=setup, usual=True)
    for command, name in (("predict", "table.tsv"), ("finetune", "table.tsv"), ("answer", "squad.json")):
        setup = functools.partial(recode, name=name, encoding="cp1252", letters=True)
        yield Case(command, "encodings: cp1252, which is not said", setup=setup, refused=True, says=name)
        yield Case(command, "encodings: cp1252", {"encoding": "cp1252"}, setup=setup, works=True)
        for claimed in ("utf-16", "ascii", "utf-8"):
            flags = {"encoding": claimed}
            yield Case(command, f"encodings: cp1252 as {claimed}", flags, setup=setup, refused=True, says=name)
        for encoding in NOT_OF_TEXT:
            yield Case(command, f"encodings: --encoding={encoding[:20]}", {"encoding": encoding}, refused=True,
                       says="--encoding=")  # fmt: skip
        for encoding in ODD:
            yield Case(command, f"encodings: --encoding={encoding}", {"encoding": encoding})
        for title, data in NO_TEXT.items():
            setup = functools.partial(write_file, name=name, data=data)
            yield Case(command, f"encodings: {title}", setup=setup, refused=True, says=name)


def of_other_files():
    """Prompts and texts, which are UTF-8."""
    files = {"score": "input", "generate": "prompt_file", "fill": "text_file", "evaluate_text": "text_file"}
    for command, flag in files.items():
        for encoding in ("cp1252", "utf-16", "utf-16-le", "utf-32"):
            setup = functools.partial(recode, name="prompt.txt", encoding=encoding)
            heeds_marks = command in ("evaluate_text", "generate")
            marked = heeds_marks and encoding in ("utf-16", "utf-32")
            about = {} if encoding == "utf-16-le" else {"usual": True} if marked else {"refused": True}
            says = "" if marked else "prompt.txt"
            yield Case(command, f"encodings: --{flag} in {encoding}", setup=setup, says=says, **about)
        for title, data in NO_TEXT.items():
            setup = functools.partial(write_file, name="prompt.txt", data=data)
            yield Case(command, f"encodings: --{flag} is {title}", setup=setup)
        setup = functools.partial(recode, name="prompt.txt", encoding="utf-8-sig")
        yield Case(command, f"encodings: --{flag} with a byte order mark", setup=setup, usual=command != "generate")
        setup = functools.partial(recode, name="prompt.txt", encoding="utf-8", ends="\r\n")
        kept = command in ("generate", "evaluate_text")  # line ends are part of the text
        yield Case(command, f"encodings: --{flag} with CRLF", setup=setup, usual=not kept)


def text_case(title, encoding, flags, **about):
    """A Case whose text is in another encoding."""
    return Case("prepare", f"encodings: {title}", flags, setup=functools.partial(recode_text, encoding=encoding),
                **about)  # fmt: skip


def recode_text(folder, encoding):
    """Writes the source in another encoding."""
    for path in (folder / "text").iterdir():
        path.write_bytes(path.read_text().encode(encoding))


def write_text(folder, data):
    """Writes bytes as each file of the source."""
    for path in (folder / "text").iterdir():
        path.write_bytes(data)


def recode(folder, name, encoding, letters=False, ends="\n"):
    """Writes a file in another encoding; `letters`: with letters that are not ASCII."""
    text = (folder / name).read_text().replace("\n", ends)
    text = text.replace("lambda", "naïve café") if letters else text
    (folder / name).write_bytes(text.encode(encoding))


def write_file(folder, name, data):
    """Writes bytes as a file."""
    (folder / name).write_bytes(data)


def knows(folder, printed, word):
    """The fault of a corpus that should have a word; "" if none."""
    known = (folder / "new" / "vocab.txt").read_text().split()
    return "" if word in known else f"it knows {known[:5]}, not {word!r}"
