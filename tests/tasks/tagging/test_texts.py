"""Tagged words in all the forms that other programs write: lists, rows of words, texts with spans."""

import json

import pytest

from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.frames import table_of
from txl_tf.errors import InputError
from txl_tf.tasks.tagging.texts import read_tagged

WORDS, TAGS = [["Anna", "Berg", "works"], ["Oslo"]], [["B-PER", "I-PER", "O"], ["B-LOC"]]


def read(tmp_path, content, name="a.jsonl", labelled=True, **columns):
    path = tmp_path / name
    if not isinstance(content, str):
        content = "".join(json.dumps(row) + "\n" for row in content)
    path.write_text(content)
    return read_tagged(str(path), Columns(**columns), labelled)


def check(texts):
    assert [text.words for text in texts] == WORDS
    assert [list(text.tags) for text in texts] == TAGS
    assert texts.understood.endswith(": 2 texts, 4 words, 4 tags (IOB2)")


@pytest.mark.parametrize("words", ["tokens", "words", "Wort"])
@pytest.mark.parametrize("tags", ["tags", "ner_tags", "ner", "labels", "Art"])
def test_lists(tmp_path, words, tags):
    rows = [{"id": i, words: w, tags: t} for i, (w, t) in enumerate(zip(WORDS, TAGS, strict=True))]
    own = ({"text_column": words} if words == "Wort" else {}) | ({"label_column": tags} if tags == "Art" else {})
    check(read(tmp_path, rows, **own))
    (tmp_path / "all.json").write_text(json.dumps(rows, indent=1))
    check(read_tagged(str(tmp_path / "all.json"), Columns(**own)))
    check(read_tagged(table_of(rows), Columns(**own)))


def test_lists_in_cells(tmp_path):
    """As pandas writes lists to CSV, and Label Studio its spans."""
    rows = [f'"{words}","{tags}"' for words, tags in zip(WORDS, TAGS, strict=True)]
    check(read(tmp_path, "\n".join(["tokens,ner_tags", *rows]), "a.csv"))
    check(read(tmp_path, "\n".join(["tokens,ner_tags", *(row.replace("', '", "' '") for row in rows)]), "a.csv"))
    span = '[{""start"": 0, ""end"": 4, ""labels"": [""PER""]}]'
    (text,) = read(tmp_path, f'id,text,label\n1,Anna works,"{span}"\n', "a.csv")
    assert text.tags == ("B-PER", "O")
    (text,) = read(tmp_path, [{"text": "Anna works", "label": "a class", "spans": [[0, 4, "PER"]]}])
    assert text.tags == ("B-PER", "O")


def test_numbers_as_tags_need_names(tmp_path):
    names = ["O", "B-PER", "I-PER", "B-LOC"]
    rows = [{"tokens": w, "ner_tags": [names.index(t) for t in row]} for w, row in zip(WORDS, TAGS, strict=True)]
    with pytest.raises(InputError, match="has the number 1 as tag: give --label_names=O,B-PER"):
        read(tmp_path, rows)
    check(read(tmp_path, rows, label_names=",".join(names)))
    with pytest.raises(InputError, match=r"has the label .3., but --label_names has the names of 0 to 2"):
        read(tmp_path, rows, label_names="O,B-PER,I-PER")


@pytest.mark.parametrize(
    ("content", "name", "columns"),
    [
        ("sentence_id,words,labels\n0,Anna,B-PER\n0,Berg,I-PER\n0,works,O\n1,Oslo,B-LOC\n", "a.csv", {}),
        ("Sentence #,Word,POS,Tag\nS 1,Anna,N,B-PER\n,Berg,N,I-PER\n,works,V,O\nS 2,Oslo,N,B-LOC\n", "a.csv", {}),
        ("sentence_id\tword\ttag\n0\tAnna\tB-PER\n0\tBerg\tI-PER\n0\tworks\tO\n1\tOslo\tB-LOC\n", "a.tsv", {}),
        ("word;tag\nAnna;B-PER\nBerg;I-PER\nworks;O\n;\nOslo;B-LOC\n", "a.csv", {}),
        (
            "Satz,Wort,Art\n4,Anna,B-PER\n4,Berg,I-PER\n4,works,O\n5,Oslo,B-LOC\n",
            "a.csv",
            {"sentence_column": "Satz", "text_column": "Wort", "label_column": "Art"},
        ),
        (
            "sentence_id,x,y\n4,Anna,B-PER\n4,Berg,I-PER\n4,works,O\n5,Oslo,B-LOC\n",
            "a.csv",
            {"text_column": "2", "label_column": "3"},
        ),
    ],
)
def test_a_row_for_each_word(tmp_path, content, name, columns):
    check(read(tmp_path, content, name, **columns))
    texts = read(tmp_path, content, name, labelled=False, **columns)
    assert [text.words for text in texts] == WORDS


def test_rows_of_words_say_where_texts_begin(tmp_path):
    with pytest.raises(InputError, match="--sentence_column"):
        read(tmp_path, "word,tag\nAnna,B-PER\nBerg,O\n", "a.csv")
    with pytest.raises(InputError, match="has no column 'Satz'"):
        read(tmp_path, "word,tag\nAnna,B-PER\n", "a.csv", sentence_column="Satz")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_quotes_that_are_words_take_in_no_rows(tmp_path, separator):
    rows = 'sentence_id,words,labels\n1,Anna,B-PER\n1,",O\n1,so,O\n1,",O\n2,ja,O\n'.replace(",", separator)
    with pytest.raises(InputError, match=r"line 3 has a word with line breaks, .*: if it holds other rows"):
        read(tmp_path, rows, "a.csv")
    texts = read(tmp_path, rows.replace(f'"{separator}', f'""""{separator}'), "a.csv")
    assert [text.words for text in texts] == [["Anna", '"', "so", '"'], ["ja"]]


def test_sentences_that_come_again(tmp_path):
    head, rows = "doc_id,sent_id,word,tag\n", ["a,1,Anna,B-PER", "a,1,Berg,I-PER", ",1,works,O", "b,1,Oslo,B-LOC"]
    check(read(tmp_path, head + "\n".join(rows), "a.csv"))  # each document counts its sentences
    texts = read(tmp_path, head + "\n".join([*rows, "a,1,is,O"]), "a.csv")
    assert len(texts) == 3 and "1 text whose sentence was there before" in texts.remarks[0]
    texts = read(tmp_path, ",word,tag\n0,Anna,B-PER\n1,works,O\n,,\n2,Oslo,B-LOC\n", "a.csv")
    assert [text.words for text in texts] == [["Anna", "works"], ["Oslo"]]  # the column without a name counts rows


TEXTS = ["Anna Berg works", "Oslo"]
SPANS = [[[0, 9, "PER"]], [[0, 4, "LOC"]]]


def objects(begin, end, label):
    return [[{begin: b, end: e, label: [k] if label == "labels" else k} for b, e, k in row] for row in SPANS]


@pytest.mark.parametrize("name", ["label", "labels", "entities", "spans", "ents"])
@pytest.mark.parametrize(
    "spans",
    [
        SPANS,
        objects("start", "end", "label"),
        objects("begin", "end", "label"),
        objects("start_offset", "end_offset", "labels"),
        objects("start", "end", "entity_group"),
        objects("start", "end", "type"),
    ],
)
def test_texts_with_spans(tmp_path, name, spans):
    rows = [{"text": text, name: own} for text, own in zip(TEXTS, spans, strict=True)]
    check(read(tmp_path, rows))
    check(read_tagged(table_of(rows), Columns()))


def test_forms_of_annotation_programs(tmp_path):
    (tmp_path / "spacy.json").write_text(
        json.dumps([[text, {"entities": spans}] for text, spans in zip(TEXTS, SPANS, strict=True)])
    )
    check(read_tagged(str(tmp_path / "spacy.json"), Columns()))
    studio = [
        {
            "id": i,
            "data": {"text": text},
            "annotations": [
                {"was_cancelled": True, "result": []},
                {
                    "result": [
                        {"value": {"start": b, "end": e, "text": text[b:e], "labels": [k]}, "type": "labels"}
                        for b, e, k in spans
                    ]
                    + [{"value": {"choices": ["good"]}, "type": "choices"}]
                },
            ],
        }
        for i, (text, spans) in enumerate(zip(TEXTS, SPANS, strict=True))
    ]
    studio.append({"data": {"text": "Nobody read this"}, "annotations": []})
    (tmp_path / "studio.json").write_text(json.dumps(studio))
    texts = read_tagged(str(tmp_path / "studio.json"), Columns())
    check(texts)
    assert "1 text left out" in texts.remarks[0]
    prodigy = [
        {
            "text": text,
            "tokens": [{"text": word, "id": i} for i, word in enumerate(text.split())],
            "spans": [{"start": b, "end": e, "label": k, "token_start": 0} for b, e, k in spans],
            "answer": "accept",
        }
        for text, spans in zip(TEXTS, SPANS, strict=True)
    ]
    prodigy += [prodigy[0] | {"answer": answer} for answer in ("reject", "ignore")]
    texts = read(tmp_path, prodigy)
    check(texts)
    assert "2 rows left out, which nobody accepted" in texts.understood
    (tmp_path / "studio.json").write_text(json.dumps(studio[2:]))
    with pytest.raises(InputError, match="no texts to learn from: 1 text left out, which nobody accepted or annotated"):
        read_tagged(str(tmp_path / "studio.json"), Columns())
    assert len(read(tmp_path, [{"text": "a b", "tokens": [], "spans": [], "answer": "accept"}])) == 1


def test_spans_of_single_words_with_the_letters_of_tags_are_said(tmp_path):
    texts = read(tmp_path, [{"text": "Anna Lind works", "spans": [[0, 4, "B-PER"], [5, 9, "I-PER"]]}])
    assert texts.remarks == ("spans have kinds such as 'I-PER': give one span for a whole name, without the letter",)


def test_spans_get_whole_words_and_are_counted(tmp_path):
    texts = read(tmp_path, [{"text": "Annas Haus, Oslo", "label": [[0, 4, "PER"], [12, 16, "LOC"]]}])
    assert texts[0].words == ["Annas", "Haus", ",", "Oslo"]
    assert texts[0].tags == ("B-PER", "O", "O", "B-LOC")
    assert "1 span began or ended inside a word" in texts.remarks[0]
    (text,) = read(tmp_path, [{"text": "他在北京。", "label": [[2, 4, "LOC"]]}])
    assert text.tags == ("O", "O", "B-LOC", "I-LOC", "O")


@pytest.mark.parametrize(
    ("spans", "said"),
    [
        ([[0, 9, "PER"], [5, 15, "X"]], "overlaps another"),
        ([[0, 99, "PER"]], "is not part of the text of 15 characters"),
        ([[3, 3, "PER"]], "is not part of the text"),
        ([[4, 5, "PER"]], "has no word"),
        ([{"start": 1, "end": 5, "label": "PER", "text": "Anna"}], "should be 'Anna', and the text has 'nna '.*UTF-16"),
        ([[0, 4]], "a span must be"),
        ([["0", "4", "PER"]], "a span must be"),
        ([{"start": 0, "end": 4, "labels": ["PER", "LOC"]}], "one label"),
    ],
)
def test_wrong_spans_are_faults_of_their_line(tmp_path, spans, said):
    with pytest.raises(InputError, match=f"line 1.*{said}"):
        read(tmp_path, [{"text": TEXTS[0], "label": spans}])


def conll(*tags):
    return "".join(f"w{i} {tag}\n" for i, tag in enumerate(tags))


def test_one_odd_tag_is_refused_with_its_line(tmp_path):
    with pytest.raises(InputError, match=r"line 3: the tag '0' does not name an entity.*--scheme=plain"):
        read(tmp_path, conll("B-PER", "O", "0", "O"), "a.conll")
    texts = read(tmp_path, conll("B-PER", "O", "0", "O"), "a.conll", scheme="plain")
    assert texts.columns.scheme == "plain"
    with pytest.raises(InputError, match=r"line 1: the tag 'PER'.*--scheme=io"):
        read(tmp_path, conll("PER", "O", "LOC"), "a.conll")
    assert read(tmp_path, conll("PER", "O", "LOC"), "a.conll", scheme="io").understood.endswith("3 tags (io)")


def test_numbers_and_small_letters_are_said(tmp_path):
    (said,) = read(tmp_path, conll("1", "0", "2"), "a.conll").remarks
    assert "the tags are numbers: if they stand for names, give --label_names" in said
    with pytest.raises(InputError, match=r"line 1: the tag 'b-per' has small letters.*--scheme=plain"):
        read(tmp_path, conll("b-per", "o", "i-per"), "a.conll")
    assert len(read(tmp_path, conll("b-per", "o"), "a.conll", scheme="plain")) == 1
    for tags in (("BEGIN-PER", "INSIDE-PER", "OUTSIDE"), ('"B-PER"', '"O"'), ("'B-PER'", "O", "'O'")):
        with pytest.raises(
            InputError, match=r"line 1: the tag .* has small letters, quotes or whole words, and O, B-KIND"
        ):
            read(tmp_path, conll(*tags), "a.conll")
    with pytest.raises(InputError, match="line 2: the tag 'o' has small letters"):
        read(tmp_path, conll("B-PER", "o", "O"), "a.conll")
    with pytest.raises(InputError, match=r"line 1: the tag '\(PER\*' opens or closes a bracket"):
        read(tmp_path, conll("(PER*", "*)", "*", "(LOC)"), "a.conll")
    with pytest.raises(InputError, match=r"'B:PER' does not name an entity.*: correct it, or --scheme=plain"):
        read(tmp_path, conll("B:PER", "O"), "a.conll")


@pytest.mark.parametrize(
    ("tags", "name", "scheme"),
    [
        ("B-A I-A O B-A", "IOB2", "iob"),
        ("I-A I-A B-A O I-A", "IOB1", "iob"),
        ("B_A L_A O U_A", "BILOU", "iob"),
        ("A-B A-I O A-B", "IOB2", "iob"),
        ("B-A M-A E-A W-A", "BMEWO", "iob"),
        ("O O", "iob", "iob"),
        ("NOUN VERB", "plain, each word counts", "plain"),
    ],
)
def test_the_scheme_is_found_and_said(tmp_path, tags, name, scheme):
    texts = read(tmp_path, conll(*tags.split()), "a.conll")
    assert texts.understood.endswith(f"({name})")
    assert texts.columns.scheme == scheme


def test_a_missing_column_is_named(tmp_path):
    with pytest.raises(InputError, match="has no column of texts or words, but 'note': name it with --text_column"):
        read(tmp_path, [{"note": "Anna works"}], labelled=False)
    with pytest.raises(InputError, match="has no column 'Wort': it has 'tokens', 'tags'"):
        read(tmp_path, [{"tokens": ["a"], "tags": ["O"]}], text_column="Wort")
    with pytest.raises(InputError, match="line 1 has no words with tags"):
        read(tmp_path, [{"text": "Anna"}])
