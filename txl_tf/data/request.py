"""The settings of a preparation: which text, which kind of token; and what follows from them."""

from __future__ import annotations

import dataclasses

from txl_tf.data import encoders
from txl_tf.data.tables.dataset_folders import local
from txl_tf.data.text import sources
from txl_tf.data.text.corpora import CORPORA, PublishedCorpus
from txl_tf.errors import InputError, naming
from txl_tf.settings.choices import DATASETS, VOCABULARIES
from txl_tf.storage.files import read_bytes, read_lines


@dataclasses.dataclass(frozen=True)
class Settings:
    """Which corpus to prepare, and how.

    Attributes:
        dataset: one of DATASETS.
        source: the published archive or its files; for dataset "text" a file, directory or glob. None: download.
        vocab: one of VOCABULARIES; None: the corpus's own, or bytes.
        vocab_size: of a SentencePiece model to train.
        vocab_file: a vocabulary to use unchanged: a word list, one word per line; a SentencePiece model (XLNet's
            spiece.model for "xlnet"); or for enwik8 and text8 their symbols, as a model_dir has them.
        keep_accents: for vocab "xlnet": letters keep their accents, which the published models do not know.
        min_count: rarer words become the unknown token; None: the corpus's own rule.
        documents: "file" or "blank_line": what separates documents in dataset "text".
        splits: for dataset "text": "names" or "shares", see `sources.text_files`; None: "names" if files are named so.
        encoding, binary: for dataset "text", see `own_files.plain_files`.
        text_column, as_is: of tables, see `sources.text_files`.
        passes: shuffled copies of the training text; None: the corpus's own number.
        seed: of the shuffling.
    """

    dataset: str
    source: str | None = None
    vocab: str | None = None
    vocab_size: int | None = None
    vocab_file: str | None = None
    keep_accents: bool = False
    min_count: int | None = None
    documents: str = "file"
    splits: str | None = None
    encoding: str | None = None
    binary: bool = False
    text_column: str | None = None
    as_is: bool = False
    passes: int | None = None
    seed: int = 0

    @property
    def corpus(self) -> PublishedCorpus | None:
        """The PublishedCorpus, or None."""
        return CORPORA.get(self.dataset)

    def check(self) -> None:
        """Raises InputError if a setting is missing or would be ignored."""
        own_words = self.vocab is None and self.corpus is not None and self.corpus.encoder is None
        words = self.vocab == "words" or own_words
        if self.dataset not in DATASETS or self.vocab not in (None, *VOCABULARIES):
            raise InputError(f"--dataset is one of {', '.join(DATASETS)} and --vocab of {', '.join(VOCABULARIES)}")
        if self.dataset == "text" and not self.source:
            raise InputError("--dataset=text needs --source: a file, a directory or a quoted glob")
        if self.dataset == "python_stdlib" and self.source:
            raise InputError("--dataset=python_stdlib reads this interpreter's own library: omit --source")
        if self.vocab == "sentencepiece" and (self.vocab_size is None) == (self.vocab_file is None):
            raise InputError("--vocab=sentencepiece needs either --vocab_size, to train a model, or --vocab_file")
        if self.vocab == "xlnet" and self.vocab_file is None:
            raise InputError("--vocab=xlnet needs --vocab_file: the spiece.model that comes with XLNet's checkpoints")
        if self.keep_accents and self.vocab != "xlnet":
            raise InputError("--keep_accents is for --vocab=xlnet: other vocabularies change no letter")
        if self.vocab_size is not None and self.vocab != "sentencepiece":
            raise InputError(
                "--vocab_size is for --vocab=sentencepiece: the size of other vocabularies follows from the text"
            )
        own_symbols = self.vocab is None and self.corpus is not None and self.corpus.encoder is not None
        if self.vocab_file is not None and not (words or own_symbols or self.vocab in ("sentencepiece", "xlnet")):
            raise InputError("--vocab_file is for words (a list), sentencepiece and xlnet (a model), enwik8 and text8")
        if (self.min_count is not None or self.passes is not None) and not words:
            raise InputError("--min_count and --passes are for vocabularies of words")
        if self.documents != "file" and self.dataset != "text":
            raise InputError("--documents is for --dataset=text")
        if self.splits is not None and self.dataset != "text":
            raise InputError("--splits is for --dataset=text: published corpora have their own splits")
        if (self.encoding is not None or self.binary or self.as_is) and self.dataset != "text":
            raise InputError("--encoding, --binary and --as_is are for --dataset=text: published corpora are UTF-8")

    def encoder(self) -> encoders.TokenKind:
        """The TokenKind of these settings."""
        corpus, vocab = self.corpus, self.vocab
        if vocab is None and corpus and corpus.encoder:
            return corpus.encoder(vocab_file=self.vocab_file)
        if vocab in ("sentencepiece", "xlnet"):
            model = read_bytes(self.vocab_file) if self.vocab_file else None
            with naming(self.vocab_file or ""):
                return encoders.Subwords(self.vocab_size, model, xlnet=vocab == "xlnet", keep_accents=self.keep_accents)
        if vocab == "chars":
            return encoders.SeenChars()
        if vocab == "words" or (vocab is None and corpus):
            options = dict(corpus.words if corpus else {})
            if self.min_count is not None:
                options["min_count"] = self.min_count
            if self.vocab_file:
                options["word_list"] = _read_words(self.vocab_file)
            encoder = encoders.Words(**options)
            for token in encoder.required if self.vocab_file else ():
                if token not in options["word_list"]:
                    raise InputError(f"{self.vocab_file} has no {token}: add it as a line of its own")
            return encoder
        return encoders.AllBytes()

    def text(self, download_dir: str, work_dir: str) -> sources.TextSource:
        """The TextSource of the corpus. `download_dir` is for archives, `work_dir` for files from them; both local."""
        if self.dataset == "python_stdlib":
            return sources.standard_library()
        corpus, source = self.corpus, self.source and local(self.source)
        if corpus is None:
            return sources.text_files(
                source or "",
                self.documents,
                self.splits,
                work_dir,
                self.encoding,
                self.binary,
                self.text_column,
                self.as_is,
            )
        at_lines = self.vocab not in (None, "bytes")
        return corpus.text(self.dataset, source, download_dir, work_dir, at_lines, self.text_column)

    @property
    def written_passes(self) -> int:
        """How many copies of the training text are written."""
        return self.passes or (self.corpus.passes if self.corpus and self.vocab in (None, "words") else 1)


def _read_words(path: str) -> list[str]:
    """The words of a list, one per line; counts may follow. InputError for a word that occurs twice."""
    lines: dict[str, int] = {}
    for number, line in enumerate(read_lines(path), start=1):
        # Split as bytes: a word of an imported vocabulary may hold white space that is not ASCII.
        if columns := line.encode().split():
            word = columns[0].decode()
            if word in lines:
                raise InputError(
                    f"{path}, line {number} has {word!r}, as line {lines[word]}: every word has one line, so remove one"
                )
            lines[word] = number
    return list(lines)
