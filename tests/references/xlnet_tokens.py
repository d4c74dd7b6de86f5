"""XLNet's tokens as its official code makes them, in Python, and a comparison on text of your own.

PYTHONPATH=. python tests/references/xlnet_tokens.py spiece.model text.txt .. [--lines=10000] [--lower_case]
    [--keep_accents]

Files may be gzipped. --lines lines are taken from each file, evenly, without blank ones. Every line is encoded by the
rules below, by XLNetVocabulary outside the graph, and inside it in batches. Exit status 1 if any ids differ.
Where two cuttings of a line have one score ("1 11" and "11 1"), two versions of SentencePiece may choose differently by
the rounding of their sums: tensorflow-text brings its own. Such lines are counted apart.
"""

import argparse
import gzip
import io
import sys
import time
import unicodedata

import numpy as np
import sentencepiece


def clean(text, lower_case=False, keep_accents=False, remove_space=True):
    """The clean-up of a text before SentencePiece."""
    if remove_space:
        text = " ".join(text.split())
    text = text.replace("``", '"').replace("''", '"')
    if not keep_accents:
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(character for character in decomposed if unicodedata.combining(character) == 0)
    return text.lower() if lower_case else text


def generated_lines(number, seed=0):
    """Lines with everything the rules are about: numbers with commas, accents, quotes, wide spaces, unknown letters."""
    rng = np.random.default_rng(seed)
    words = [
        "the",
        "River",
        "naïve",
        "Ångström",
        "e\u0301te\u0301",
        "日本",
        "ﬁne",
        "x²",
        "don''t",
        "``so''",
        "<eop>",
        "<sep>",
    ]
    words += ["(one)", "dash-ed", "हिन्दी", "☃\ufe0f", "ᜀ᜔", "ΑΣ", "İ", "5,", "a\u2581b", ",", "1,000,"]
    spaces = [" ", " ", " ", "  ", "\t", "\u3000", "\u00a0"]
    lines = []
    for _ in range(number):
        numbers = [f"{n:,}," if n % 2 else f"{n}," for n in rng.integers(0, 10 ** rng.integers(1, 9), 6)]
        row = rng.choice(np.array([*words, *numbers], dtype=object), rng.integers(0, 15))
        lines.append("".join(word + str(rng.choice(spaces)) for word in row))
    return lines


def small_model(vocab_size=300):
    """A serialised unigram model with XLNet's special pieces and normalisation, trained on generated lines."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(generated_lines(3000, seed=1)),
        model_writer=model,
        vocab_size=vocab_size,
        character_coverage=0.995,
        split_by_unicode_script=False,
        split_by_number=False,
        control_symbols=["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"],
        user_defined_symbols=["<eop>", *'.()"-'],
        minloglevel=4,
    )
    return model.getvalue()


class Rules:
    """Encodes by the official rules; `model` is a serialised SentencePiece model."""

    def __init__(self, model, **options):
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.options = options

    def pieces(self, text):
        """The pieces of a text, as strings."""
        found = []
        for piece in self.processor.encode_as_pieces(clean(text, **self.options)):
            if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
                found.append(piece)
                continue
            number = self.processor.encode_as_pieces(piece[:-1].replace("\u2581", ""))
            if piece[0] != "\u2581" and number[0][0] == "\u2581":
                number[0] = number[0][1:]
            found += [part for part in number if part] + [","]
        return found

    def encode(self, text):
        """The ids of a text."""
        return [self.processor.piece_to_id(piece) for piece in self.pieces(text)]

    def is_tie(self, ids, others):
        """Whether two lists of ids differ, are the same text, and have the same score."""
        texts = [[self.processor.id_to_piece(token) for token in cutting] for cutting in (ids, others)]
        scores = [sum(self.processor.get_score(token) for token in cutting) for cutting in (ids, others)]
        return ids != others and "".join(texts[0]) == "".join(texts[1]) and abs(scores[0] - scores[1]) < 1e-3


def main():
    """See the module."""
    import tensorflow as tf

    from txl_tf.data.vocabularies import XLNetVocabulary

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--lower_case", action="store_true")
    parser.add_argument("--keep_accents", action="store_true")
    arguments = parser.parse_args()
    with open(arguments.model, "rb") as file:
        model = file.read()
    options = {"lower_case": arguments.lower_case, "keep_accents": arguments.keep_accents}
    rules, vocabulary = Rules(model, **options), XLNetVocabulary(model, **options)
    in_graph = tf.function(vocabulary.encode_tensor, input_signature=[tf.TensorSpec([None], tf.string)])

    lines = []
    for path in arguments.texts:
        with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8", errors="replace") as file:
            own = [line for line in file.read().split("\n") if line.strip()]
        share = max(arguments.lines // len(arguments.texts), 1)
        lines += own[:: max(len(own) // share, 1)][:share]
    start = time.perf_counter()
    expected = [rules.encode(line) for line in lines]
    middle = time.perf_counter()
    inside = [row for i in range(0, len(lines), 500) for row in in_graph(tf.constant(lines[i : i + 500])).to_list()]
    end = time.perf_counter()
    outside = [vocabulary.encode(line).tolist() for line in lines]
    ties, wrong = 0, []
    for line, *ids in zip(lines, expected, inside, outside, strict=True):
        if ids[1] == ids[2] and rules.is_tie(ids[0], ids[1]):
            ties += 1
        elif ids.count(ids[0]) != 3:
            wrong.append(line)
    for line in wrong[:10]:
        print(f"differs: {line[:200]!r}")
    commas = sum(
        piece[-1:] == "," and piece[-2:-1].isdigit()
        for line in lines
        for piece in rules.processor.encode_as_pieces(line)
    )
    changed = sum(line != clean(line, **options) for line in lines)
    print(
        f"{len(lines):,} lines, {sum(map(len, expected)):,} tokens, {commas:,} pieces under the comma rule, "
        f"{changed:,} lines changed by the clean-up; {len(wrong)} lines differ, "
        f"{ties} more in the choice among cuttings of equal score; "
        f"rules {middle - start:.1f} s, in the graph {end - middle:.1f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
