"""Not a test: text of one's own: names of splits, few and odd files, long lines, lists of words."""

import functools
import re

from campaign import damage
from campaign.case import Case

SAMPLE = "a few words that are here only to be read\n" * 40
TRIOS = {
    "dev": ("train.txt", "dev.txt", "test.txt"),
    "val": ("train.txt", "val.txt", "test.txt"),
    "validation": ("train.csv.txt", "validation.txt", "test.txt"),
    "eval": ("my_train_set.txt", "my_eval_set.txt", "my_test_set.txt"),
    "capitals": ("TRAIN.TXT", "Valid.TXT", "Test.TXT"),
    "wiki.train.tokens": ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"),
    "ptb.train.txt": ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"),
    "news.train.en": ("news.train.en", "news.dev.en", "news.test.en"),
    "numbers": ("train-00000", "valid_2", "test3"),
    "folders": ("train/a.txt", "valid/a.txt", "test/a.txt"),
    "folders below": ("en/train/deep/a", "en/dev/deep/a", "en/test/b"),
    "hidden files beside": ("train.txt", "dev.txt", "test.txt", ".DS_Store", ".git.txt", "sub/.hidden"),
}
"""Names of the three splits; of what follows nothing is read."""
UNCLEAR = {
    "no valid text": ("train.txt", "test.txt"),
    "no test text": ("train.txt", "valid.txt"),
    "only tests": ("a.py", "b.py", "test_a.py"),
    "two claims": ("train.txt", "valid.txt", "dev.txt", "test.txt"),
    "a name of two splits": ("train.txt", "train_dev.txt", "test.txt"),
    "a further file": ("train.txt", "dev.txt", "test.txt", "README"),
    "a folder and a file that claim one split": ("train/a", "dev/a", "val.txt", "test/a"),
    "half a set of folders": ("train/a", "test/a"),
}
"""Names that could be splits but are not a complete set."""
LISTS = {
    "twice a word": ("word1\nword2\n<eos>\n<unk>\nword1\n", "list.txt, line 5 has 'word1', as line 1"),
    "no signs": ("word1\nword2\n", "list.txt has no <"),
    "nothing": ("", "list.txt"),
    "only empty lines": ("\n\n\n", "list.txt"),
    "not UTF-8": (b"<eos>\n<unk>\nwo\xffrd\n", "list.txt, line 3 is not UTF-8"),
    "half a surrogate": (b"<eos>\n<unk>\n\xed\xa0\x80\n", "list.txt, line 3 is not UTF-8"),
}
"""Lists of words that are refused, and what is said of them."""


def cases():
    """Every case of text of one's own."""
    for title, names in TRIOS.items():
        yield case(f"names of splits: {title}", marked(names), check=functools.partial(kept_apart, names=names))
    for title, names in UNCLEAR.items():
        files = marked(names)
        yield case(title, files, refused=True, says="--splits=shares")
        yield case(f"{title}, shares", files, {"splits": "shares"}, works=True)
    yield case("names that say nothing", marked("abc"), {"splits": "names"}, refused=True, says="no files named for")
    yield from few_files()
    yield from odd_files()
    yield from long_lines()
    yield from lists()


def case(title, files, flags=None, command="prepare", **about):
    """A Case with other files as the source."""
    about = about if about.keys() & {"refused", "works", "usual"} else {"works": True} | about
    return Case(command, f"own text: {title}", flags or {}, setup=functools.partial(write, files=files), **about)


def few_files():
    """One file, few files, and about as many as are drawn whole."""
    lines = "".join(f"line{i} of some text\n" for i in range(400))
    for count in (1, 2, 3, 39, 40, 41):
        files = {f"{i:02}.txt": lines for i in range(count)}
        yield case(f"{count} files", files, check=functools.partial(has_splits, tokens=count * 400 * 5))
    languages = {"a.txt": "aaa " * 4000, "b.txt": "bbb " * 4000, "c.txt": "ccc " * 4000}
    yield case("a language in each file", languages, check=knows_all)
    blank = {"all.txt": "\n\n".join(f"document {i}" for i in range(300))}
    yield case("documents by blank lines", blank, {"documents": "blank_line"}, check=has_splits)
    yield case(
        "one document by blank lines", {"all.txt": SAMPLE}, {"documents": "blank_line"}, refused=True, says="text"
    )


def odd_files():
    """Files without text or without words, and things that are not files."""
    trio = dict.fromkeys(("train.txt", "valid.txt", "test.txt"), SAMPLE)
    yield case("no files", {}, refused=True, says="no text found at text")
    yield case("only empty files", {"a.txt": "", "b.txt": ""}, refused=True, says="text")
    yield case("only white space", {"a.txt": " \n\t\n" * 100}, refused=False)
    yield case("one character", {"a.txt": "a"}, refused=True)
    yield case("an empty file among others", {"a.txt": SAMPLE, "b.txt": "", "c.txt": SAMPLE})
    for name in trio:
        yield case(f"{name} is empty", trio | {name: ""}, refused=True, says=name.removesuffix(".txt"))
    yield case("no last line end", {name: text[:-1] for name, text in trio.items()})
    for title, ends in (("CRLF", "\r\n"), ("CR", "\r"), ("U+2028", "\u2028"), ("form feeds", "\f")):
        yield case(f"line ends of {title}", {name: text.replace("\n", ends) for name, text in trio.items()})
    for kind in ("a pipe", "a circle"):
        yield Case("prepare", f"own text: {kind} beside", setup=functools.partial(add, kind=kind), refused=True,
                   says="text/odd")  # fmt: skip
    yield Case("prepare", "own text: a link to the folder in it", setup=add_circle, refused=True, says="circle")
    new = trio | {"valid.txt": "unheard of\n" * 100}
    yield case("unknown words", new, says="unknown", works=True)
    yield case("words that are too rare", trio, {"min_count": "1000000"})


def long_lines():
    """Lines without an end, and writing without spaces."""
    han = "".join(chr(0x4E00 + i * 7 % 900) for i in range(2000))
    kana = "".join(chr(0x3041 + i * 5 % 80) for i in range(2000)) + "がぎぐげご。"
    texts = {
        "a line of 3 MB": ("some words " * 300_000, "280"),
        "a word of 1 MB": ("a" * 1_000_000 + "\n" + SAMPLE, "270"),
        "Chinese without spaces": (f"{han}\n" * 60, "1500"),
        "Japanese in one line": (kana * 100, "300"),
    }
    for title, (text, size) in texts.items():
        for vocab in ("bytes", "chars", "words", "sentencepiece"):
            flags = {"vocab": vocab, "min_count": False} | ({"vocab_size": size} if vocab == "sentencepiece" else {})
            yield case(f"{title}, {vocab}", {"a.txt": text}, flags)
    pieces = {"vocab": "sentencepiece", "min_count": False, "vocab_size": "1500"}
    yield case("Chinese in long words", {"a.txt": f"{han}\n" * 60}, pieces, check=pieces_of_han)
    tiny = {"a.txt": "ab " * 1000}
    yield case("fewer pieces than asked for", tiny, pieces, refused=True, says="--vocab_size")


def lists():
    """Lists of words as --vocab_file."""
    for title, (content, says) in LISTS.items():
        setup = functools.partial(write_list, content=content)
        yield Case("prepare_listed", f"own text: a list with {title}", setup=setup, refused=True, says=says)
    for title, ends in (("CRLF", "\r\n"), ("no end", "")):
        setup = functools.partial(write_list, content=None, ends=ends)
        yield Case("prepare_listed", f"own text: a list with {title}", setup=setup, usual=True)
    setup = functools.partial(write_list, content="<eos>\n<unk>\nother\n")
    yield Case("prepare_listed", "own text: a list without the text's words", setup=setup, works=True, says="unknown")
    for vocab in ("sentencepiece", "xlnet"):
        flags = {"vocab": vocab}
        yield Case("prepare_listed", f"own text: a list as {vocab}", flags, refused=True, says="list.txt")


def marked(names):
    """{name: text with a word of its own}."""
    return {name: SAMPLE + f"mark{i} " * 10 + "\n" for i, name in enumerate(names)}


def write(folder, files):
    """Writes the files of the source, and removes what was there."""
    source = folder / "text"
    for path in source.iterdir():
        path.unlink()
    for name, content in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def add(folder, kind):
    """Adds something that is not a file to the source."""
    damage.make(folder / "text" / "odd", kind)


def add_circle(folder):
    """Adds a link that leads above itself."""
    (folder / "text" / "circle").symlink_to(".")


def write_list(folder, content, ends="\n"):
    """Writes list.txt, or the usual words with other line ends."""
    path = folder / "list.txt"
    if content is None:
        content = path.read_text()
        content = content.replace("\n", ends) if ends else content[:-1]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def kept_apart(folder, printed, names):
    """The fault of a corpus whose first three files are its splits; "" if none."""
    known = (folder / "new" / "vocab.txt").read_text().split()
    if "mark0" not in known or any(f"mark{i}" in known for i in range(1, len(names))):
        return f"it knows {[word for word in known if word.startswith('mark')]}, not mark0 alone"
    return has_splits(folder, printed)


def has_splits(folder, printed, tokens=0):
    """The fault in the table of splits: a split without text, or another sum of tokens; "" if none.

    Ends of documents may be tokens, too.
    """
    counts = [int(number.replace(",", "")) for number in re.findall(r"([\d,]+) tokens", printed)]
    if len(counts) != 3 or not all(counts) or (tokens and not tokens <= sum(counts) <= 1.01 * tokens):
        return f"splits have {counts} tokens: {printed[-300:]}"
    return ""


def knows_all(folder, printed):
    """The fault of a corpus of three languages: one is missing in the training text; "" if none."""
    known = (folder / "new" / "vocab.txt").read_text().split()
    return "" if {"aaa", "bbb", "ccc"} <= set(known) else f"it knows {known}"


def pieces_of_han(folder, printed):
    """The fault of a SentencePiece model for Chinese text: it was made without the text; "" if none."""
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=str(next((folder / "new").glob("*.model"))))
    pieces = [model.id_to_piece(i) for i in range(len(model))]
    found = sum(any("\u4e00" <= sign <= "\u9fff" for sign in piece) for piece in pieces)
    return "" if found > 500 else f"only {found} of {len(pieces)} pieces have Chinese characters"
