"""CoNLL's format: what is a word, a comment, a column; and which files have it."""

import re

import pytest

from txl_tf.data.tables.columns import Columns
from txl_tf.errors import FaultsError, InputError
from txl_tf.tasks.tagging.texts import read_tagged

TAGS = ("B-LOC", "B-PER", "I-PER", "O")


def read(tmp_path, content, name="a.conll", labelled=True, known=(), **columns):
    path = tmp_path / name
    path.write_bytes(content.encode())
    return read_tagged(str(path), Columns(**columns), labelled, known)


def words(texts):
    return [text.words for text in texts]


def tags(texts):
    return [list(text.tags) for text in texts]


@pytest.mark.parametrize("comment", ["# id 00000001-aa domain=en", "#", "###MEDLINE:1", "# text = EU leaves", "#\tid"])
def test_comments_are_left_out_and_counted(tmp_path, comment):
    texts = read(tmp_path, f"{comment}\nEU _ _ B-LOC\nleaves _ _ O\n\n{comment}\nAnna _ _ B-PER\n")
    assert words(texts) == [["EU", "leaves"], ["Anna"]]
    assert texts.understood == (
        "CoNLL, word in column 1, tag in 4, 2 comments left out: 2 texts, 3 words, 3 tags (IOB2)"
    )


def test_hashtags_are_words(tmp_path):
    assert words(read(tmp_path, "#EU O\nAnna B-PER\nist O\n# O\n")) == [["#EU", "Anna", "ist", "#"]]
    assert words(read(tmp_path, "#EU\nleaves\n\n# text = EU leaves\nAnna\n", labelled=False)) == [
        ["#EU", "leaves"],
        ["Anna"],
    ]


GERMEVAL = "#\thttp://example.org/1 [2009-10-17]\n1\tAnna\tB-PER\tO\n2\tcounts\tO\tO\n\n1\tOslo\tB-LOC\tO\n"
CONLLU = "".join(
    f"{number}\t{word}\t_\t{tag}\t_\t_\t0\troot\t_\t{misc}\n"
    for number, word, tag, misc in (
        ("1-2", "im", "_", "_"),
        ("1", "in", "ADP", "_"),
        ("2", "dem", "DET", "SpaceAfter=No"),
        ("2.1", "geht", "VERB", "_"),
        ("3", "Haus", "NOUN", "_"),
    )
)


@pytest.mark.parametrize(
    ("content", "labelled", "said"),
    [
        (GERMEVAL, True, "line 2 has '1', 'Anna', 'B-PER', 'O': column 1 counts.* --text_column=2 --label_column=3"),
        (GERMEVAL, False, "column 1 counts.* such as --text_column=2$"),
        (CONLLU, True, "line 1 has '1-2', 'im'.*--text_column=2 --label_column=4"),
        (GERMEVAL.replace("1\t", "0\t").replace("2\t", "1\t"), True, "--text_column=2 --label_column=3"),
        ("1 EU B-LOC\n2 ist O\n", True, "--text_column=2 --label_column=3"),
    ],
)
def test_a_column_that_counts_is_not_read_as_words(tmp_path, content, labelled, said):
    with pytest.raises(InputError, match=said):
        read(tmp_path, content, labelled=labelled)


def test_flags_name_the_columns_by_number_or_name(tmp_path):
    texts = read(tmp_path, GERMEVAL, "a.tsv", text_column="2", label_column="3")
    assert (words(texts), tags(texts)) == ([["Anna", "counts"], ["Oslo"]], [["B-PER", "O"], ["B-LOC"]])
    for columns in ({"text_column": "2", "label_column": "4"}, {"text_column": "FORM", "label_column": "UPOS"}):
        texts = read(tmp_path, CONLLU, "a.conllu", **columns)
        assert (words(texts), tags(texts)) == ([["in", "dem", "Haus"]], [["ADP", "DET", "NOUN"]])
        assert "2 lines of several words left out" in texts.understood
    with pytest.raises(InputError, match="--text_column=2 --label_column=4"):
        read(tmp_path, CONLLU, text_column="2")
    with pytest.raises(InputError, match="has 4 columns, so there is no --label_column=5"):
        read(tmp_path, GERMEVAL, text_column="2", label_column="5")
    named = "# global.columns = ID NER WORD\n1\tB-LOC\tOslo\n2\tO\tist\n"
    assert words(read(tmp_path, named, text_column="WORD", label_column="NER")) == [["Oslo", "ist"]]
    assert words(read(tmp_path, "token\ttag\nOslo\tB-LOC\n\nist\tO\n")) == [["Oslo"], ["ist"]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("B-PER\tAnna\nO\tist\n", "column 1 has tags such as 'B-PER', not words: .*--text_column=2 --label_column=1"),
        ("Anna B-PER 0.99\nist O .5\n", "column 3 has '0.99', not a tag: .*--label_column=2"),
        ("Anna 0.99\nist 0.98\n", "column 2 has '0.99', not a tag: name the column of the tags, with --label_column"),
        ("a/b 0 0 Anna NNP -\na/b 0 1 ist VBZ -\n\na/b 1 0 Oslo NNP -\n", "column 1 has 'a/b' for all words of"),
        ("s1 Anna B-PER\ns1 ist O\n\ns2 Oslo B-LOC\ns2 ist O\n", "column 1 has 's1' for all words of the text"),
        ("1 Anna B-PER\n2 ist O\n\n3 Oslo B-LOC\n", "column 1 counts the words.*--text_column=2 --label_column=3"),
        ("Anna, B-PER\nist, O\n\nOslo, B-LOC\n", "line 1 has 'Anna,', a word and a comma: give a line for each"),
        ("Anna;B-PER\nist;O\n\nOslo;B-LOC\n", "line 1 has 'Anna;B-PER', a word and its tag in one"),
    ],
)
def test_columns_of_something_else_are_not_read(tmp_path, content, said):
    with pytest.raises(InputError, match=said):
        read(tmp_path, content)


def test_other_columns_of_tags_are_said(tmp_path):
    texts = read(tmp_path, "Anna B-PER _\nist O NoSpace\n")
    assert "tags such as B-PER in 2, too, which --label_column=2 reads" in texts.understood
    texts = read(tmp_path, "Anna B-PER B-LOC\nist O O\nOslo B-LOC O\n")  # right tags, and predictions
    assert "tag in 3, tags such as B-PER in 2, too, which --label_column=2 reads" in texts.understood
    assert "in 2, too" not in read(tmp_path, "Anna NNP B-NP B-PER\nist VBZ B-VP O\n").understood
    with pytest.raises(InputError, match="has no texts"):
        read(tmp_path, "word tag\n")
    assert tags(read(tmp_path, "I-95 O\nI-95 O\n")) == [["O", "O"]]


def test_names_of_other_tags_are_a_header(tmp_path):
    assert tags(read(tmp_path, "Token POS\nAnna NNP\nist VBZ\n")) == [["NNP", "VBZ"]]
    assert tags(read(tmp_path, "token\tner_tag\nAnna\tB-PER\n\nist\tO\n", "a.tsv")) == [["B-PER"], ["O"]]
    hipe = "TOKEN\tNE-COARSE-LIT\tMISC\n# language = de\nAnna\tB-pers\tNoSpaceAfter\nist\tO\t_\n"
    texts = read(tmp_path, hipe, "a.tsv")
    assert words(texts) == [["Anna", "ist"]] and "which --label_column=2 reads" in texts.understood
    assert tags(read(tmp_path, hipe, "a.tsv", label_column="2")) == [["B-pers", "O"]]
    assert words(read(tmp_path, "Token NN O\nist NN O\n")) == [["Token", "ist"]]


@pytest.mark.parametrize("labelled", [True, False])
def test_broken_json_is_not_conll(tmp_path, labelled):
    with pytest.raises(InputError, match="line 1 is not JSON"):
        read(tmp_path, "('Anna ist', {'entities': [(0, 4, 'PER')]})\n", "a.jsonl", labelled, TAGS)


def test_scores_of_games_are_words(tmp_path):
    assert words(read(tmp_path, "won O\n2-1 O\nin B-LOC\n")) == [["won", "2-1", "in"]]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\r\r\n"])
def test_all_ends_of_lines(tmp_path, end):
    content = end.join(["Anna B-PER", "ist O", "", "Oslo B-LOC", ""])
    assert words(read(tmp_path, content)) == [["Anna", "ist"], ["Oslo"]]
    assert words(read(tmp_path, content, labelled=False)) == [["Anna", "ist"], ["Oslo"]]


def test_a_language_before_each_word_is_said(tmp_path):
    lines = "en:Anna B-PER\nen:is O\nen:10:30 O\n\nen:Oslo B-LOC\n"
    (said,) = read(tmp_path, lines).remarks
    assert said.startswith("all words begin with 'en:', which is read, too: remove it if it is a language")
    assert not read(tmp_path, lines + "re O\n").remarks


def test_texts_of_one_word_are_said(tmp_path):
    (said,) = read(tmp_path, "Anna B-PER\n\nist O\n\n" * 5).remarks
    assert said.startswith("each text has one word: correct the file if texts have more")
    assert not read(tmp_path, "Anna B-PER\n\nist O\nhier O\n\n" * 5).remarks


def test_columns_are_cut_at_tabs_and_spaces_only(tmp_path):
    assert words(read(tmp_path, "New York \tB-LOC\nist\tO\n")) == [["New York", "ist"]]
    texts = read(tmp_path, "10\u00a0000 O\n\u3000 O\nEU  B-LOC \n\u200b O\n\u00a0 O\n")
    assert words(texts) == [["10\u00a0000", "\u3000", "EU", "\u200b", "\u00a0"]]
    assert words(read(tmp_path, "New York\tB-LOC\t\nist\tO\t\n")) == [["New York", "ist"]]
    assert words(read(tmp_path, "New York\t\nist\t\n\nOslo\t\n", labelled=False)) == [["New York", "ist"], ["Oslo"]]


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.txt", "Anna visits Oslo\nPeter likes Graz\n", [["Anna", "visits", "Oslo"], ["Peter", "likes", "Graz"]]),
        ("a.txt", "Anna visits Oslo .\nHe is .\n", [["Anna", "visits", "Oslo", "."], ["He", "is", "."]]),
        ("a.txt", "Anna\nvisits\n\nOslo\n", [["Anna", "visits"], ["Oslo"]]),
        ("a.txt", "Anna\nOslo\n", [["Anna"], ["Oslo"]]),
        ("a.txt", "Anna x B-PER\nvisits x O\n", [["Anna", "visits"]]),
        ("a.txt", "-DOCSTART- -X- O\n\nAnna NNP I-ORG\nvisits VB O\n", [["Anna", "visits"]]),
        ("a.txt", "Anna\tNNP\nvisits\tVB\n\nOslo\tNNP\n", [["Anna", "visits"], ["Oslo"]]),
        ("a.conll", "Anna visits\nOslo is\n", [["Anna", "Oslo"]]),
        (
            "a.txt",
            "今天我们在北京大学见面\n\n他们明天去上海看电影了\n",
            [list("今天我们在北京大学见面"), list("他们明天去上海看电影了")],
        ),
        ("a.txt", "#1 in Oslo\n", [["#", "1", "in", "Oslo"]]),
        ("a.csv", "text\nAnna visits\n", [["Anna", "visits"]]),
        ("a.tsv", "id\ttext\n7\tAnna visits\n", [["Anna", "visits"]]),
    ],
)
def test_predictions_read_lines_as_texts_unless_they_are_conll(tmp_path, name, content, found):
    assert words(read(tmp_path, content, name, labelled=False, scheme="iob", known=(*TAGS, "."))) == found


def test_one_message_for_a_fault_on_most_lines(tmp_path):
    lines = ["A good film", *["It was dull"] * 9, "word"]
    with pytest.raises(InputError, match=r"line 2 has 4 columns.*the same in 10 of 11 lines") as caught:
        read(tmp_path, "\n".join(["EU O", *(line + " O" for line in lines[:-1])]))
    assert not isinstance(caught.value, FaultsError)
    with pytest.raises(FaultsError, match="2 faults"):
        read(tmp_path, "EU O\nis\nin O O\n" + "so O\n" * 9)


@pytest.mark.parametrize("separator", ["|", "/", "_", "###"])
def test_words_with_joined_tags_are_refused(tmp_path, separator):
    text = f"EU{separator}B-ORG is{separator}O\nGo{separator}O\n"
    for labelled, tags in ((True, ()), (False, ("O", "B-ORG"))):
        with pytest.raises(InputError, match=r"line 1 has 'EU.*B-ORG', a word and its tag in one"):
            read(tmp_path, text, "a.txt", labelled, tags)
    assert len(read(tmp_path, text, "a.txt", False, ("X",))) == 2


def test_several_words_with_their_tags_in_a_line_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"line 1 has 'EU acts', several words with their tags: give a line for each"):
        read(tmp_path, "EU acts\tB-ORG O\nGo\tO\n", "a.txt")
    with pytest.raises(InputError, match="several words with their tags"):
        read(tmp_path, "EU acts\tB-ORG O\nGo\tO\n", "a.txt", labelled=False, known=TAGS)
    assert words(read(tmp_path, "New York\tB-LOC\nist\tO\n", "a.txt")) == [["New York", "ist"]]


@pytest.mark.parametrize("outside", ["O", "_", "-"])
@pytest.mark.parametrize("columns", [(1, 2), (2, 1)])
def test_tags_in_two_columns_are_refused(tmp_path, outside, columns):
    rows = [("Anna", "B", "PER"), ("Berg", "I", "PER"), ("ist", "O", outside), ("Oslo", "B", "LOC")]
    text = "".join(f"{row[0]} {row[columns[0]]} {row[columns[1]]}\n" for row in rows)
    letters, kinds = columns.index(1) + 2, columns.index(2) + 2
    with pytest.raises(
        InputError, match=f"column {letters} has the letters of tags and column {kinds} their kinds: give"
    ):
        read(tmp_path, text)
    assert len(read(tmp_path, text, label_column=str(letters))) == 1


def test_letters_alone_beside_parts_of_speech_are_tags(tmp_path):
    texts = read(tmp_path, "Anna NE B\nist V O\nin P O\nOslo NE B\n")
    assert tags(texts) == [["B", "O", "O", "B"]]


def test_no_tensorflow_is_needed():
    import subprocess
    import sys

    code = "import sys, txl_tf.tasks.tagging.texts; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_message_names_line_and_remedy(tmp_path):
    with pytest.raises(InputError, match=re.escape("line 2 has a word without a tag: correct the line")):
        read(tmp_path, "EU O\nis\nin O\n")
