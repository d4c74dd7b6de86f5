"""The published corpora: addresses, checksums, and the rules by which the official code reads them.

Rules (kimiyoung/transformer-xl, its data_utils.py and getdata.sh):
  enwik8  symbols are bytes; newlines are left out, so the vocabulary has 204 entries, not 205. 90M/5M/5M bytes.
  text8   symbols are characters; the space at the start of the text is left out. 90M/5M/5M characters.
  wt103   words, <eos> after each line, vocabulary of the training words. Cutoffs for the adaptive softmax.
  wt2     words, <eos> after each line, vocabulary of all three splits.
  ptb     as wt2, in lower case.
  lm1b    words, <S> at both ends of each sentence, sentences shuffled in each pass; words seen less than 3 times are
          <UNK>. Test is the first of the 50 held-out parts, valid the second (the official code takes the first for
          both, and so does this one if only the first is there).
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import logging

from txl_tf.data import encoders
from txl_tf.data.tables.dataset_folders import local, parts
from txl_tf.data.text import archives, rows, sources
from txl_tf.data.text.download import PublishedFile, fetch
from txl_tf.data.text.splits import WORDS
from txl_tf.errors import InputError


@dataclasses.dataclass(frozen=True)
class PublishedCorpus:
    """A published corpus.

    Attributes:
        published: the archive.
        members: regular expressions for file names, by split; {"all": ..} for one file that is cut 90/5/5 by bytes.
        encoder: makes the TokenKind, of a vocab_file; None: words, with the options in `words`.
        words: options of encoders.Words.
        cutoffs: of the adaptive softmax.
        vocab_size: of the published files.
        passes: copies of the training text, each shuffled.
        articles: whether the text is articles, each with a title as WikiText has them.
        copy: where the Hub has the text as Parquet files, as hf://..
        tokens: of each split in the published files, ends of lines included; {}: not known.
        line_of: makes a line of the text of a row of its copies.
    """

    published: PublishedFile
    members: dict[str, str]
    encoder: Callable[..., encoders.TokenKind] | None = None
    words: dict[str, Any] = dataclasses.field(default_factory=dict)
    cutoffs: tuple[int, ...] = ()
    vocab_size: int = 0
    passes: int = 1
    articles: bool = False
    copy: str = ""
    tokens: dict[str, int] = dataclasses.field(default_factory=dict)
    line_of: Callable[[str], str] | None = None

    def text(
        self, name: str, source: str | None, download_dir: str, work_dir: str, at_lines: bool, column: str | None
    ) -> sources.TextSource:
        """TextSource of the corpus `name`; InputError if there is nothing to read, or another corpus.

        Args:
            source: the archive, or a file or directory with its content, also as Parquet or Arrow; None: download.
            download_dir, work_dir: local directories for the archive, and for extracted files.
            at_lines: whether splits of one file begin at the start of a line instead of the published byte.
            column: of the texts in Parquet and Arrow files, see `rows.text_column`.
        """
        try:
            source = source or fetch(self.published, download_dir)
        except InputError as error:
            if not self.copy:
                raise
            logging.warning("%s: its copy at %s follows", error, self.copy)
            return self._of_rows(name, local(self.copy), work_dir, column, published=True)
        if self.line_of and tf.io.gfile.isdir(source) and parts(source):
            return self._of_rows(name, source, work_dir, column)
        if column:
            raise InputError(f"--text_column is for tables, and {source} holds none that {name} is read from: omit it")
        pattern = "|".join(self.members.values())
        if tf.io.gfile.isdir(source):
            files = sources.find_files(source)
            found = [path for path in files if not archives.is_archive(path)]
            zipped = [path for path in files if path.endswith(".gz")]
            found += [inner for path in zipped for inner in archives.extract(_local(path, work_dir), pattern, work_dir)]
        elif not tf.io.gfile.exists(source):
            raise InputError(f"{source} not found: give the {self.published.name} from {self.published.urls[0]}")
        elif archives.is_archive(source):
            source = _local(source, work_dir)
            if os.path.getsize(source) != self.published.bytes:
                logging.warning("%s is not the published %s: it has another length", source, self.published.name)
            found = archives.extract(source, pattern, work_dir)
        else:
            found = [source]
        return self._text(name, source, found, at_lines)

    def _of_rows(
        self, name: str, source: str, work_dir: str, column: str | None, published: bool = False
    ) -> sources.TextSource:
        """The text in a folder of Parquet or Arrow files, a row for each line. `published`: it must be all of it."""
        files: dict[str | None, list[str]] = {}
        for part, paths in parts(source).items():
            split = WORDS.get(part.rpartition("/")[2])
            if split in files:
                raise InputError(f"{source} has several folders of tables: give one of them as --source")
            files[split] = paths
        if name == "lm1b":
            files.setdefault("valid", files.get("test", []))
        pieces = []
        for split in sources.SPLITS:
            if not files.get(split):
                raise InputError(
                    f"{source} has no {split} text of {name}: no Parquet or Arrow file is named {split}-.."
                )
            path = os.path.join(work_dir, f"{split}.txt")
            count = rows.write_lines(files[split], column, self.line_of or str, path)
            if published and count != self.tokens[split]:
                raise InputError(
                    f"{source} is not the published {name}: {split} has {count:,} tokens, not {self.tokens[split]:,}"
                )
            pieces.append(sources.Piece(split, path))
        return sources.TextSource(tuple(pieces), inner="article" if self.articles else "")

    def _text(self, name: str, source: str, found: list[str], at_lines: bool) -> sources.TextSource:
        names = {path: path.replace("\\", "/").rsplit("/", 1)[-1] for path in found}
        files = {
            split: sorted(path for path in found if re.fullmatch(pattern, names[path]))
            for split, pattern in self.members.items()
        }
        if "all" in files:
            whole = files["all"] or (found if len(found) == 1 else [])
            if len(whole) != 1:
                raise InputError(f"{source} holds no {name}: give --source={self.published.name} or the file inside it")
            if tf.io.gfile.stat(whole[0]).length != 100_000_000:
                logging.warning("%s is not all of %s: its last 5%% are test, the 5%% before them valid", whole[0], name)
            return sources.TextSource(tuple(sources.cut_by_bytes(whole[0], at_lines)))
        if name == "lm1b":
            files["valid"] = files["valid"] or files["test"]
        for split, paths in files.items():
            if not paths:
                raise InputError(
                    f"{source} has no {split} text of {name}: give {self.published.name}, its files with their names, "
                    "or a folder of Parquet files"
                )
        pieces = [sources.Piece(split, path) for split in sources.SPLITS for path in files[split]]
        return sources.TextSource(tuple(pieces), inner="article" if self.articles else "")


def _local(path: str, directory: str) -> str:
    if "://" not in path:
        return path
    copy = os.path.join(directory, path.rsplit("/", 1)[-1])
    tf.io.gfile.copy(path, copy, overwrite=True)
    return copy


def _wiki_line(row: str) -> str:
    """A row of WikiText is a line with its spaces; a line of one space has an empty row."""
    return (row.removesuffix("\n") or " ") + "\n"


_WIKI_MEMBERS = {split: rf"(wiki\.)?{split}\.(tokens|txt)|wikitext-\d+\.{split}\.txt" for split in sources.SPLITS}

CORPORA = {
    "enwik8": PublishedCorpus(
        PublishedFile(
            ("http://mattmahoney.net/dc/enwik8.zip", "https://data.deepai.org/enwik8.zip"),
            36_445_475,
            "sha256:547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
        ),
        {"all": "enwik8"},
        encoders.SeenBytes,
        vocab_size=204,
    ),
    "text8": PublishedCorpus(
        PublishedFile(
            ("http://mattmahoney.net/dc/text8.zip", "https://data.deepai.org/text8.zip"),
            31_344_016,
            "sha256:a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232",
        ),
        {"all": "text8"},
        functools.partial(encoders.SeenChars, trim=True),
        vocab_size=27,
    ),
    "wt103": PublishedCorpus(
        PublishedFile(
            ("https://wikitext.smerity.com/wikitext-103-v1.zip",),
            190_229_076,
            "sha256:242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
        ),
        _WIKI_MEMBERS,
        words={"counted": ("train",)},
        cutoffs=(20_000, 40_000, 200_000),
        vocab_size=267_735,
        articles=True,
        copy="hf://datasets/Salesforce/wikitext/wikitext-103-v1",
        tokens={"train": 103_227_021, "valid": 217_646, "test": 245_569},
        line_of=_wiki_line,
    ),
    "wt2": PublishedCorpus(
        PublishedFile(
            ("https://wikitext.smerity.com/wikitext-2-v1.zip",),
            4_475_746,
            "sha256:92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
        ),
        _WIKI_MEMBERS,
        words={"counted": sources.SPLITS},
        vocab_size=33_278,
        articles=True,
        copy="hf://datasets/Salesforce/wikitext/wikitext-2-v1",
        tokens={"train": 2_088_628, "valid": 217_646, "test": 245_569},
        line_of=_wiki_line,
    ),
    "ptb": PublishedCorpus(
        PublishedFile(
            ("http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz",),
            34_869_662,
            "md5:30177ea32e27c525793142b6bf2c8e2d",
        ),
        {split: rf"(ptb\.)?{split}\.txt" for split in sources.SPLITS},
        words={"counted": sources.SPLITS, "lower_case": True},
        vocab_size=10_000,
        copy="hf://datasets/ptb-text-only/ptb_text_only@refs/convert/parquet/penn_treebank",
        tokens={"train": 929_589, "valid": 73_760, "test": 82_430},
        line_of=" {} \n".format,
    ),
    "lm1b": PublishedCorpus(
        PublishedFile(
            ("http://www.statmt.org/lm-benchmark/1-billion-word-language-modeling-benchmark-r13output.tar.gz",),
            1_792_209_805,
            "sha256:01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e",
        ),
        {
            "train": r"news\.en-\d{5}-of-00100",
            "valid": r"news\.en\.heldout-00001-of-00050",
            "test": r"news\.en\.heldout-00000-of-00050",
        },
        words={
            "counted": ("train",),
            "min_count": 3,
            "first": ("<S>", "</S>", "<UNK>"),
            "line_end": "<S>",
            "unknown": "<UNK>",
            "both_ends": True,
        },
        cutoffs=(60_000, 100_000, 640_000),
        vocab_size=793_471,
        passes=4,
        line_of="{}\n".format,
    ),
}
