"""Not a test: half a surrogate pair, such as half an emoji, in every text that a command or a model takes.

The example server's part is in hostile.py.
"""

import functools
import json

from campaign.case import Case

HALVES = {"a first half": "\\ud83d", "a second half": "\\ude00", "halves the wrong way round": "\\ude00\\ud83d"}
SAID = "half a surrogate pair"
CALLS = {
    "generate": "model",
    "score": "model",
    "fill": "xlnet",
    "encode": "xlnet",
    "classify": "tuned",
    "answer": "answering",
    "tag": "tagging",
    "label": "labelling",
}
"""Methods that are tried in Python, and the part of the world that each needs."""


def cases():
    """Every case of surrogates."""
    for title, half in HALVES.items():
        for where in ("text", "text_b", "label", "column", "id"):
            setup = functools.partial(write_lines, where=where, sign=half)
            flags = {"input": "t.jsonl", "metrics": False}  # with it the label must be one that the model knows
            yield Case("predict", f"surrogates: {title} in a {where}", flags, setup=setup, works=True, says=SAID)
            files = {"train": "t.jsonl", "dev": "t.jsonl"}
            yield Case("finetune", f"surrogates: {title} in a {where}", files, setup=setup, works=True, says=SAID)
        for where in ("question", "context", "answer", "id", "title"):
            setup = functools.partial(write_questions, where=where, sign=half)
            yield Case("answer", f"surrogates: {title} in a {where}", setup=setup, works=True, says=SAID)
            flat = functools.partial(write_questions, where=where, sign=half, flat=True)
            yield Case("answer", f"surrogates: {title} in a {where} of a flat list", setup=flat, works=True, says=SAID)
        for call, model in CALLS.items():
            flags = {"model_dir": model, "call": call, "text": f'"word1 {half} word2"'}
            yield Case("python", f"surrogates: {call}, {title}", flags, works=True, says=SAID)
    for call, model in CALLS.items():
        flags = {"model_dir": model, "call": call, "text": '"word1 \\ud83d\\ude00 word2"'}
        yield Case("python", f"surrogates: {call}, a whole pair", flags, works=True, check=says_nothing)
    setup = functools.partial(write_lines, where="text", sign="\\ud83d\\ude00")
    yield Case("predict", "surrogates: a whole pair", {"input": "t.jsonl"}, setup=setup, works=True, check=says_nothing)
    for command, flag, file in (
        ("score", "input", "prompt.txt"),
        ("generate", "prompt_file", "prompt.txt"),
        ("generate_many", "prompts_jsonl", "prompts.jsonl"),
        ("fill", "text_file", "prompt.txt"),
        ("evaluate_text", "text_file", "prompt.txt"),
        ("score_table", "input", "tickets.csv"),
        ("predict", "input", "table.tsv"),
        ("answer", "input", "squad.json"),
        ("prepare", "source", "text/train.txt"),
    ):
        setup = functools.partial(append, file=file)
        yield Case(command, f"surrogates: as bytes in --{flag}", setup=setup, refused=True, says=file)
    for command, flag in (("generate", "prompt"), ("fill", "text"), ("fill", "context")):
        flags = {flag: "a \udced\udca0\udc80 b", "prompt_file": False, "text_file": False}
        yield Case(command, f"surrogates: as bytes in --{flag}", flags, refused=True, says="not UTF-8")


def write_lines(folder, where, sign):
    """Writes t.jsonl, a table with a sign, as JSON escapes it, in a field of its first row."""
    rows = [{"text": f"lambda return {i}", "text_b": "import", "label": "yes" if i % 2 else "no"} for i in range(8)]
    lines = [json.dumps(row) for row in rows]
    if where in ("column", "id"):
        name = f"other {sign}" if where == "column" else "id"
        lines[0] = f'{{"{name}": "{sign if where == "id" else 1}", {lines[0][1:]}'
    elif where == "label":
        lines = [line.replace('"yes"', f'"yes {sign}"') for line in lines]
    else:
        lines[0] = lines[0].replace(f'"{where}": "', f'"{where}": "{sign} ')
    (folder / "t.jsonl").write_text("\n".join(lines) + "\n")


def write_questions(folder, where, sign, flat=False):
    """Writes squad.json with a sign, as JSON escapes it, in a field."""
    texts = dict.fromkeys(("question", "context", "answer", "id", "title"), "") | {where: "SIGN"}
    answer = {"text": "import" + texts["answer"], "answer_start": 7}
    question = {"id": "q1" + texts["id"], "question": "class ?" + texts["question"]}
    about = {"title": "t" + texts["title"]}
    context = f"lambda import{texts['answer']} return {texts['context']}"
    if flat:
        value = [about | question | {"context": context, "answers": {"text": [answer["text"]], "answer_start": [7]}}]
    else:
        paragraph = {"context": context, "qas": [question | {"answers": [answer], "is_impossible": False}]}
        value = {"version": "v2.0", "data": [about | {"paragraphs": [paragraph]}]}
    (folder / "squad.json").write_text(json.dumps(value).replace("SIGN", sign))


def append(folder, file):
    """Appends half a pair as UTF-8 does not have it."""
    with open(folder / file, "ab") as stream:
        stream.write(b"a \xed\xa0\xbd b\n")


def says_nothing(folder, printed):
    """A complaint about a message that should not be there; "" if it is not."""
    return f"it says: {printed[-300:]}" if SAID in printed else ""
