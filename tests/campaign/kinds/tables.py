"""Not a test: tables and questions as people have them: separators, headers, empty rows, labels, SQuAD's forms."""

import functools
import json

from campaign.case import Case

ROWS = [(f"lambda return {word}", label) for word, label in (("import", "yes"), ("while", "no"))] * 4
"""The rows of the world's table.tsv."""
EVERY = ("predict", "finetune")


def cases():
    """Every case of odd tables."""
    yield from forms()
    yield from columns()
    yield from rows()
    yield from labels()
    yield from names()
    yield from texts()
    yield from questions()
    yield from tagged_words()


def case(title, data, flags=None, commands=(), name="t.csv", **about):
    """Cases of commands whose input is another file: of predict, and of finetune if it is refused, which is quick."""
    for command in commands or (EVERY if about.get("refused") else ("predict",)):
        files = (
            {"input": name}
            if command in ("predict", "answer", "tag", "label", "score_table")
            else {"train": name, "dev": name}
        )
        setup = functools.partial(write, name=name, data=data)
        yield Case(command, f"tables: {title}", files | (flags or {}), setup=setup, **about)


def lines(separator=",", header=("text", "label"), end="\n", rows=ROWS):
    """The text of a table."""
    return "".join(separator.join(row) + end for row in [*([header] if header else []), *rows])


def forms():
    """Separators, line ends, encodings, headers: what must be read as the usual table is."""
    for name, sign in (("comma", ","), ("semicolon", ";"), ("tab", "\t"), ("bar", "|")):
        for end in ("csv", "tsv"):
            yield from case(f"{name} in .{end}", lines(sign), name=f"t.{end}", usual=True)
        yield from case(f"sep= {name}", f"sep={sign}\n" + lines(sign), usual=True)
        yield from case(f"a delimiter of {name}", lines(sign), {"delimiter": sign}, ("predict",), usual=True)
    yield from case("a delimiter of ^", lines("^"), {"delimiter": "^"}, ("predict",), usual=True)
    yield from case("a delimiter that is not found", lines(), {"delimiter": "^"}, refused=True, says="no column 'text'")
    for value in ("ab", "none", '"', "\r"):
        yield from case(f"--delimiter={value!r}", lines(), {"delimiter": value}, refused=True)
    for name, end in (("CRLF", "\r\n"), ("CR", "\r")):
        yield from case(f"line ends of {name}", lines(end=end), usual=True)
        yield from case(f"line ends of {name}, tabs", lines("\t", end=end), name="t.tsv", usual=True)
    saved = "sep=;\r\n" + lines(";", end="\r\n")
    for encoding in ("utf-8-sig", "utf-16"):
        yield from case(f"a spreadsheet program's {encoding}", saved.encode(encoding), commands=EVERY, usual=True)
    flags = {"encoding": "cp1252"}
    yield from case("a spreadsheet program's cp1252", saved.encode("cp1252"), flags, usual=True)
    quoted = lines(rows=[(f'"{text}"', f'"{label}"') for text, label in ROWS], header=('"text"', '"label"'))
    yield from case("quotes", quoted, usual=True)
    yield from case("quotes that do not end", lines() + '"no end,yes\n', refused=True, says="quotes")
    yield from case("text after quotes", lines() + '"a"b,yes\n', refused=True, says="quotes")
    broken = lines(
        rows=[(f'"{text.replace(" ", sign)}"', label) for (text, label), sign in zip(ROWS, BREAKS, strict=True)]
    )
    yield from case("line breaks in cells", broken, commands=EVERY, usual=True)
    yield from case("quotes in .tsv", lines("\t", rows=[*ROWS, ('a "quoted" word', "yes")]), name="t.tsv", works=True)
    yield from case(
        "other columns", lines(header=("id", "text", "label"), rows=[("1", *row) for row in ROWS]), usual=True
    )
    yield from case("no last line end", lines()[:-1], usual=True)
    yield from case("a long text", lines(rows=[*ROWS, ("word " * 200_000, "yes")]), commands=("predict",), works=True)
    yield from case("the end of the name in capitals", lines(), name="T.CSV", usual=True)
    jsonl = [json.dumps({"text": text, "label": label}) for text, label in ROWS]
    yield from case("JSON lines", "\n".join(jsonl) + "\n", name="t.jsonl", usual=True)
    yield from case("JSON lines with empty ones", "\n\n".join(jsonl), name="t.jsonl", usual=True)
    yield from case("JSON lines with CRLF", "\r\n".join(jsonl), name="t.jsonl", usual=True)
    yield from case("a list in JSON", "[" + ",\n".join(jsonl) + "]", name="t.jsonl", usual=True)
    yield from case("JSON lines, one cut", "\n".join(jsonl)[:-5], name="t.jsonl", refused=True, says="line 8")
    for name in ("t.txt", "t", "t.xlsx", "t.xls", "t.ods", "t.parquet", "t.csv.zip"):
        yield from case(f"a table named {name}", lines(), name=name, refused=True, says=name)
    for name, magic in (("xlsx", b"PK\3\4"), ("xls", b"\xd0\xcf\x11\xe0"), ("parquet", b"PAR1")):
        yield from case(f"{name} named .csv", magic + bytes(200), refused=True, says="t.csv")


BREAKS = ("\n", "\r\n", "\t", "  ", "\u3000", "\n\n", " \n ", " ")


def columns():
    """Flags of columns, in every command."""
    plain = lines(header=None)
    numbers = {"no_header": None, "text_column": "1", "label_column": "2"}
    yield from case("no header", plain, numbers, commands=EVERY, usual=True)
    yield from case("no header and tabs", lines("\t", None), numbers, name="t.tsv", usual=True)
    yield from case("no header, which is not said", plain, refused=True, says="--no_header")
    yield from case("no header and no numbers", plain, {"no_header": None}, refused=True, says="--text_column=1")
    yield from case("no header and names", plain, numbers | {"text_column": "text"}, refused=True, says="--text_column")
    for number in ("0", "-1", "3", "99999999999", "1.5", "\u0661"):
        yield from case(
            f"column {number}", plain, numbers | {"text_column": number}, refused=True, says="--text_column"
        )
    yield from case("JSON without header", '{"text": "a"}\n', numbers, name="t.jsonl", refused=True, says="--no_header")
    for flag in ("text_column", "text_b_column", "label_column"):
        yield from case(f"--{flag}=misspelt", lines(), {flag: "misspelt"}, refused=True, says="no column 'misspelt'")
        near = {flag: "TEXT "} if flag == "text_column" else {flag: "Other"}
        data = lines(header=("text", "label", " other"), rows=[(*row, "x") for row in ROWS])
        yield from case(f"--{flag} in other letters", data, near, refused=True, says=f"give --{flag}=")
    for flag, value in (("label_column", "text"), ("text_b_column", "text"), ("text_b_column", "label")):
        yield from case(f"--{flag}={value}", lines(), {flag: value}, refused=True, says="are both")
    yield from case("a column twice", lines(header=("text", "text")), refused=True, says="twice")
    yield from case("no column of text", lines(header=("Sentence", "label")), refused=True, says="no column 'text'")
    yield from case("a column named Text", lines(header=("Text", "label")), refused=True, says="--text_column='Text'")
    yield from case(
        "no label to learn", lines(header=("text", "other")), commands=("finetune",), refused=True, says="label"
    )
    yield from case("no label to predict", lines(header=("text", "other")), commands=("predict",), works=True,
                    flags={"metrics": False})  # fmt: skip
    for flag, value in (("text_column", "a"), ("no_header", None)):
        yield Case("answer", f"tables: --{flag} for questions", {flag: value}, refused=True, says=f"--{flag}")


def rows():
    """Rows without content, without text, of other lengths."""
    yield from case("empty rows", lines(rows=[("", ""), *ROWS, (" ", "\t"), ("", "")]), usual=True)
    yield from case("empty rows between", lines(rows=[*ROWS[:3], ("", ""), *ROWS[3:]]), usual=True, says="left out")
    yield from case("empty lines", lines().replace("\n", "\n\n"), usual=True)
    yield from case("only a header", lines(rows=[]), refused=True, says="no rows")
    yield from case("only empty rows", lines(rows=[("", "")] * 5), refused=True, says="no rows")
    yield from case("nothing", "", refused=True, says="t.csv")
    without = lines(rows=[*ROWS, ("", "yes"), (" ", "no")])
    yield from case("two rows without text", without, refused=True, says="2 faults in t.csv")
    yield from case(
        "two rows without text, left out", without, {"skip_empty": None}, commands=EVERY, usual=True, says="left out"
    )
    yield from case(
        "no row with text", lines(rows=[("", "yes")] * 3), {"skip_empty": None}, refused=True, says="no rows"
    )
    uneven = lines() + "alone\na,b,c\n"
    yield from case("rows of other lengths", uneven, refused=True, says="2 faults in t.csv")
    many = lines() + "alone\n" * 1200
    yield from case("1,200 faults", many, refused=True, says="the same in 1,200 of")
    yield from case(
        "a list in a cell", '{"text": ["a"], "label": "yes"}\n', name="t.jsonl", refused=True, says="line 1"
    )
    null = '{"text": "lambda", "text_b": null, "label": "yes"}\n{"text": "lambda", "label": "no"}\n'
    yield from case("null for a second text", null, name="t.jsonl", commands=EVERY, works=True)
    null = '{"text": "lambda", "label": null}\n'
    yield from case("null for a label", null, {"metrics": False}, ("predict",), "t.jsonl", works=True)
    yield from case("null for a label to learn", null * 2, commands=("finetune",), name="t.jsonl", refused=True,
                    says="2 faults")  # fmt: skip
    yield from case("null for a text", '{"text": null, "label": "yes"}\n', name="t.jsonl", refused=True, says="line 1")


def labels():
    """Labels that are missing, twins, numbers, booleans."""
    for label in ("NaN", "nan", "NAN "):
        yield from case(f"a label {label!r}", lines(rows=[*ROWS, ("a", label)]), refused=True, says="missing value")
    yield from case("NaN in JSON", '{"text": "a", "label": NaN}\n', name="t.jsonl", refused=True, says="t.jsonl")
    yield from case("an empty label", lines(rows=[*ROWS, ("a", "")]), refused=True, says="no label")
    twins = lines(rows=[("lambda", label) for label in ("yes", "Yes", "no", "YES")])
    yield from case("labels in other letters", twins, commands=("finetune",), works=True, says="differ only by case")
    yield from case("a label that the model does not know", twins, commands=("predict",), refused=True, says="'Yes'")
    yield from case("one class", lines(rows=ROWS[::2]), commands=("finetune",))
    yield from case("a class of dev alone", lines(rows=[*ROWS, ("a", "other")]), {"train": "table.tsv"}, ("finetune",),
                    refused=True, says="'other'")  # fmt: skip
    true = "".join(json.dumps({"text": "lambda", "label": i % 2 == 0}) + "\n" for i in range(4))
    yield from case("true and false", true, commands=("finetune",), name="t.jsonl", works=True)
    spaces = lines(rows=[(text, f" {label} ") for text, label in ROWS])
    yield from case("spaces around labels", spaces, usual=True)
    flags = {"task": "multi_label"}
    sets = "".join(json.dumps({"text": "lambda", "label": labels}) + "\n" for labels in (["a", "b"], [], ["c"], ["a"]))
    yield from case("lists of labels", sets, flags, ("finetune",), name="t.jsonl", works=True)
    cells = lines(rows=[("lambda", "a|b"), ("while", ""), ("for", "c"), ("if", "a| |a")])
    yield from case("labels in cells", cells, flags, ("finetune",), works=True)
    for labels in (3, {"a": "b"}, ["a", 2], [["a"]]):
        odd = sets + json.dumps({"text": "lambda", "label": labels}) + "\n"
        yield from case(f"labels {labels}", odd, flags, ("finetune",), name="t.jsonl", refused=True, says="line 5")
    yield from case(
        "no label at all", lines(rows=[("a", ""), ("b", "")]), flags, ("finetune",), refused=True, says="no labels"
    )
    other = cells.replace("|", ";")
    yield from case("another separator", other, {"label_separator": ";"} | flags, ("finetune",), works=True)
    for sign in (";", "|"):  # labels of the second kind are one that the model does not know
        own = lines(rows=[("lambda", f"a{sign}b"), ("while", "")])
        about = {"works": True} if sign == ";" else {"refused": True, "says": "'a|b'"}
        yield from case(f"labels with {sign} between them", own, commands=("label",), **about)
    joined = lines(rows=[("lambda", "a; b"), ("while", "b"), ("for", "b; a"), ("if", "a")])
    yield from case(
        "unnamed separator", joined, flags, ("finetune",), refused=True, says="give --label_separator=';' if"
    )
    flags = {"task": "regression"}
    for label in ("NaN", "inf", "-inf", "1,5", "high", "1e400", ""):
        data = lines(";", rows=[("lambda", "1.5"), ("while", label)])
        yield from case(f"a score {label!r}", data, flags, ("finetune",), refused=True, says="line 3")
    data = lines(rows=[("lambda", "1.5"), ("while", "-2e-3")])
    yield from case("scores", data, flags, ("finetune",), works=True)


def names():
    """Names of files, and results that would be written where they should not."""
    for name in ("found.csv", "found.tsv", "found.jsonl", "found.xlsx", "FOUND.CSV"):
        yield Case("predict_table", f"tables: --output={name}", {"output": name}, works=True)
    for name in ("found.csv.gz", "found.xls", "found.ods"):
        yield Case("predict", f"tables: --output={name}", {"output": name}, refused=True, says=name)
    for name in ("found.txt", False):
        flags = {"output": name, "all_probabilities": None}
        title = f"tables: a column for each class in {name or 'the terminal'}"
        yield Case("predict", title, flags, refused=True, says="--all_probabilities needs a table")
    yield Case("answer", "tables: --output=found.csv", {"output": "found.csv"}, refused=True, says="found.csv")
    only = {"dev": False, "train_steps": "1"}
    yield Case("finetune", "tables: two texts alone", only, refused=True, says="too few")
    several = lines("\t", rows=[(f"{text} word{i}", label) for i in range(6) for text, label in ROWS[:2]])
    setup = functools.partial(write, name="t.tsv", data=several)
    only = only | {"train": "t.tsv"}
    yield Case("finetune", "tables: a tenth held out", only, setup=setup, works=True, says="held out")
    yield Case("finetune", "tables: parts", only | {"folds": "2"}, setup=setup, works=True, says="2 folds")
    for more in ({"folds": "1"}, {"folds": "-2"}, {"folds": "2", "dev": "table.tsv"}, {"folds": "2", "seeds": "1,2"}):
        yield Case("finetune", f"tables: {more}", only | more, refused=True, says="folds")
    yield Case(
        "finetune", "tables: more parts than texts", only | {"folds": "99"}, setup=setup, refused=True, says="too few"
    )
    yield Case("predict", "tables: --output is the input", {"output": "table.tsv"}, refused=True, says="table.tsv")
    yield Case(
        "finetune", "tables: --model_dir is the table", {"model_dir": "table.tsv"}, refused=True, says="table.tsv"
    )
    yield Case("answer", "tables: --squad_dir is a file", {"squad_dir": "squad.json"}, refused=True, says="squad.json")


def texts():
    """Prompts in JSON lines, tables to score, and a published model as it is."""
    for title, data in (
        ("no prompt", '{"text": "a"}\n'),
        ("a number", '{"prompt": 3}\n'),
        ("a list", '["a"]\n'),
        ("a line cut", '{"prompt": "a"}\n{"prom'),
        ("nothing", ""),
        ("empty lines", "\n\n"),
    ):
        setup = functools.partial(write, name="p.jsonl", data=data)
        flags = {"prompts_jsonl": "p.jsonl"}
        yield Case("generate_many", f"tables: {title}", flags, setup=setup, refused=True, says="p.jsonl")
    half = functools.partial(write, name="p.jsonl", data='{"prompt": "a \\ud83d"}\n')
    yield Case("generate_many", "tables: half a pair", {"prompts_jsonl": "p.jsonl"}, setup=half, works=True)
    yield Case("generate_many", "tables: with --prompt", {"prompt": "a"}, refused=True, says="--prompts_jsonl")
    for title, text in (("one token", "word1"), ("nothing", ""), ("spaces", " \n ")):
        setup = functools.partial(write, name="t.txt", data=text)
        yield Case("evaluate_text", f"tables: {title}", {"text_file": "t.txt"}, setup=setup)
    yield Case("evaluate_text", "tables: and a corpus", {"data_dir": "words"}, refused=True, says="--text_file")
    yield Case("score_table", "tables: a column that is not there", {"text_column": "x"}, refused=True, says="'x'")
    tokens = {"text_column": "text"}
    for title, data, name in (
        ("semicolons", lines(";"), "t.csv"),
        ("a spreadsheet program's utf-16", ("sep=;\r\n" + lines(";", end="\r\n")).encode("utf-16"), "t.csv"),
        ("JSON lines", '{"text": "a", "other": [1]}\n', "t.jsonl"),
        ("no labels", lines(header=("text", "other")), "t.csv"),
    ):
        yield from case(f"{title} to score", data, tokens, ("score_table",), name, works=True)
    for title, data in (
        ("a row without text", lines(rows=[*ROWS, ("", "x")])),
        ("a long row", lines() + "a,b,c\n"),
        ("nothing", ""),
        ("only a header", lines(rows=[])),
        ("a workbook named .csv", b"PK\3\4" + bytes(200)),
    ):
        yield from case(f"{title} to score", data, tokens, ("score_table",), refused=True, says="t.csv")


def questions():
    """Files of questions."""
    answer = {"text": "import", "answer_start": 7}
    question = {"id": "q1", "question": "class ?", "answers": [answer]}
    context = "lambda import return"

    def squad(*questions, **more):
        return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": list(questions)} | more]}]})

    def flat(**more):
        return json.dumps([{"question": "class ?", "context": context} | more])

    lists = {"text": ["import"], "answer_start": [7]}
    right = {
        "no version and no title": squad(question),
        "no answers": squad({"id": "q1", "question": "class ?"}),
        "an id that is a number": squad(question | {"id": 7}),
        "no ids": squad({"question": "a ?"}, {"question": "b ?"}),
        "an answer at -1": squad(question | {"answers": [{"text": "", "answer_start": -1}]}),
        "a misplaced answer": squad(question | {"answers": [answer | {"answer_start": 3}]}),
        "an answer that is not there": squad(question | {"answers": [{"text": "nowhere", "answer_start": 0}]}),
        "an empty question": squad(question | {"question": ""}),
        "a flat list": flat(),
        "a flat list with answers": flat(answers=lists),
        "a flat list with a list of answers": flat(answers=[answer]),
        "a flat list without answer": flat(answers={"text": [], "answer_start": []}),
        "a flat list in data": json.dumps({"data": json.loads(flat(id="a"))}),
        "no paragraphs in one article": json.dumps(
            {"data": [{"paragraphs": []}, *json.loads(squad(question))["data"]]}
        ),
        "a byte order mark": "\ufeff" + squad(question),
    }
    for title, data in right.items():
        yield from case(title, data, commands=("answer",), name="q.json", works=True)
    long = squad(question, context="lambda import " * 10_000)
    yield from case("a long context", long, commands=("answer",), name="q.json", works=True)
    wrong = {
        "no questions": squad(),
        "an empty list": "[]",
        "no data": json.dumps({"version": "v2.0"}),
        "an id twice": squad(question, question),
        "an id that is a list": squad(question | {"id": []}),
        "an empty context": squad(question, context=" "),
        "a question that is a number": squad(question | {"question": 5}),
        "lists of other lengths": flat(answers={"text": ["a"], "answer_start": []}),
        "an answer to what has none": squad(question | {"is_impossible": True}),
        "a start that is a text": squad(question | {"answers": [answer | {"answer_start": "7"}]}),
        "JSON lines": squad(question) + "\n" + squad(question),
        "a table": lines(),
    }
    learn = {"task": "answering", "tgt_len": "80"}
    for title, data in wrong.items():
        yield from case(title, data, commands=("answer",), name="q.json", refused=True, says="q.json")
        yield from case(f"{title}, to learn", data, learn, ("finetune",), "q.json", refused=True, says="q.json")
    for title in ("no answers", "a flat list", "an answer that is not there"):  # nothing can be learned
        yield from case(f"{title}, to learn", right[title], learn, ("finetune",), "q.json", refused=True, says="q.json")
    learned = ("an answer at -1", "a flat list with answers", "a flat list without answer", "an id that is a number")
    for title in learned:
        yield from case(f"{title}, to learn", right[title], learn, ("finetune",), "q.json", works=True)
    find = learn | {"find_answers": None}
    yield from case("a misplaced answer, found", right["a misplaced answer"], find, ("finetune",), "q.json", works=True)
    several = squad({"question": 5}, {"question": "a", "id": []}, question)
    yield from case("two faults", several, commands=("answer",), name="q.json", refused=True, says="2 faults in q.json")


def tagged_words():
    """Files of words with tags."""
    right = {
        "empty lines": "\n\nimport B-X\n\n\n \nwhile O\n\n",
        "tabs": "a word\tx\tO\r\nimport\tx\tB-X\r\n",
        "documents": "-DOCSTART- O\n\nimport B-X\n",
        "a byte order mark": "\ufeffimport B-X\n",
        "signs without a piece": "\u200b O\n\u0301 O\n",
        "a long text": "lambda O\nimport B-X\n" * 3_000,
        "one word": "import I-X",
    }
    for title, data in right.items():
        yield from case(title, data, commands=("tag",), name="t.conll", works=True)
    lists = json.dumps({"tokens": ["lambda", "import"], "tags": ["O", "B-X"]})
    yield from case("JSON lines", lists, commands=("tag",), name="t.jsonl", works=True)
    text = {"metrics": False, "output": "found.jsonl"}
    yield from case("a text", '{"text": "lambda import"}', text, ("tag",), "t.jsonl", works=True)
    wrong = {
        "t.conll": ("", "\n", "-DOCSTART- O\n", "import", "a O\nb x O\n", "\tO\n", "import B-UNKNOWN\n"),
        "t.jsonl": (
            "",
            "[]",
            "{}",
            '{"tokens": [], "tags": []}',
            '{"tokens": ["a"], "tags": []}',
            lists.replace("O", ""),
        ),
    }
    for name, files in wrong.items():
        for data in files:
            yield from case(
                f"words {data[:20]!r} in {name}", data, commands=("tag",), name=name, refused=True, says=name
            )


def write(folder, name, data):
    """Writes a file, as UTF-8 if it is text."""
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
