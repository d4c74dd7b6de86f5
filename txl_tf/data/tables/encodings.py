"""The bytes and the text of a file, whatever its encoding. Local files need no TensorFlow."""

from __future__ import annotations

import codecs
import gzip

from txl_tf.data.text.archives import named_damage
from txl_tf.errors import InputError, one_line
from txl_tf.storage.local_files import read_local


def read_data(path: str) -> bytes:
    """The bytes of a file, local or gs://, unpacked if its name ends in .gz; InputError if that is not possible."""
    if "://" in path:
        from txl_tf.storage.files import read_bytes  # here: it loads TensorFlow

        data = read_bytes(path)
    else:
        data = read_local(path)
    if path.endswith(".gz"):
        with named_damage(path):
            data = gzip.decompress(data)
    return data


def decoded(path: str, data: bytes, encoding: str, remedy: str) -> tuple[str, str]:
    """The text of a file's bytes, and its encoding, by Python's name.

    Without an encoding it is UTF-8, or UTF-16 or UTF-32 if the file begins with its byte order mark; without the mark
    such a file is refused. `remedy` ends the message of an InputError; a likely encoding takes the place of {} in it.
    """
    if not encoding:
        encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "utf-8")
        if encoding == "utf-8" and (likely := without_mark(data[:_SAMPLE])):
            raise InputError(
                f"{path} looks like {likely.upper()} text without a byte order mark: {remedy.format(likely)}"
            )
    try:
        return data.decode(encoding).removeprefix("\ufeff"), encoding
    except UnicodeError as error:
        where, reason = path, one_line(error)
        if isinstance(error, UnicodeDecodeError):  # some of Python's codecs do not say where
            reason = error.reason
            if not path.endswith(".gz"):
                line = data[: error.start].count(b"\n") + 1
                where += f", line {line}"
        advice = remedy.format("cp1252 for many spreadsheet programs")
        if sum(map(data[:_SAMPLE].count, range(9))) > MOST_CONTROLS * len(data[:_SAMPLE]):
            advice = f"it may be a binary file, which is not read; if it is text, {advice}"
        raise InputError(f"{where} is not {encoding.upper()} text ({reason}): {advice}") from error


def without_mark(sample: bytes) -> str:
    """The encoding of text with NUL bytes among its letters, as UTF-16 has them; "": hardly any, or binary.

    `sample` is the beginning of the text.
    """
    sample = sample[: len(sample) // 4 * 4]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if even + odd <= MOST_NUL * len(sample):
        return ""
    wide = even + odd > len(sample) / 2
    big = sample[0] == 0 if wide else even > odd
    name = f"utf-{32 if wide else 16}-{'be' if big else 'le'}"
    text = sample.decode(name, "replace")
    return name if sum(one.isprintable() or one.isspace() for one in text) > 0.9 * len(text) else ""


_SAMPLE = 1 << 16
MOST_NUL = 0.05
MOST_CONTROLS = 0.01
"""The largest share of bytes from 0 to 8 in a file of text, whatever its encoding; most binary files have more."""
_MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}  # first: the one of UTF-16 begins alike
_MARKS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16", codecs.BOM_UTF8: "utf-8-sig"}
