"""Multiple choice: questions about an article, each with its options.

RACE has an object for each article: {"article": .., "questions": [..], "options": [[..], ..], "answers": ["A", ..]}.
Other rows have one question: {"article": .., "question": .., "options": [..], "answer": 0, "A" or its text}.
One error lists all faults of a file or folder.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from txl_tf.counted import counted
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.forms import read_rows
from txl_tf.data.tables.table import Rows, Table
from txl_tf.data.tables.written import written_list
from txl_tf.errors import Faults, InputError
from txl_tf.metrics import labelling
from txl_tf.metrics.task_results import FIRST, SECOND, Dev, Panel, Reliability, decoded
from txl_tf.storage.surrogates import whole
from txl_tf.tasks.base import SequenceTask, Served, Signatures, predicting
from txl_tf.tasks.classification import ClassResults
from txl_tf.tasks.settings import XLNetScoreConfig
from txl_tf.tasks.texts import checked

if TYPE_CHECKING:
    import tensorflow as tf

    from txl_tf.data.examples.example_set import ExamplePlan, ExampleSet, Pair
    from txl_tf.data.vocabularies import Vocabulary

_MANY = 20  # questions, of which some have the first option as their answer


@dataclasses.dataclass(frozen=True)
class XLNetMultipleChoiceConfig(XLNetScoreConfig):
    """One of a few sequences is the right one, such as a question with one of its answers."""

    task: ClassVar[str] = "multiple_choice"


@dataclasses.dataclass(frozen=True)
class RaceQuestion:
    """A question on an article, its options, and the number of the right one (-1: not known)."""

    article: str
    question: str
    options: tuple[str, ...]
    answer: int
    where: str


def with_options(questions: tf.Tensor, options: tf.Tensor) -> tf.Tensor:
    """Questions [n] with an option each: in place of every "_", or after a question without one."""
    import tensorflow as tf

    parts = tf.strings.split(questions, "_")
    last = parts.row_lengths() - 1
    gaps = tf.ragged.range(parts.row_lengths()).flat_values < tf.gather(last, parts.value_rowids())
    pieces = tf.strings.join([parts.flat_values, tf.where(gaps, tf.gather(options, parts.value_rowids()), "")])
    filled = tf.strings.reduce_join(parts.with_flat_values(pieces), axis=-1)
    return tf.where(last > 0, filled, tf.strings.join([questions, options], " "))


def _with_equal_options(found: list[RaceQuestion]) -> list[RaceQuestion]:
    for question in found:
        count, first = len(question.options), len(found[0].options)
        if count != first:
            other = f"{found[0].where} has {first}: all questions must have the same number"
            raise InputError(f"{question.where} has {counted(count, 'option')}, but {other}")
    return found


def _questions_of(value: dict[str, Any], file: str, answered: bool) -> list[dict[str, Any]]:
    """The questions of one of RACE's files, in the form of a line of JSON."""
    keys = ("questions", "options", "answers") if answered else ("questions", "options")
    for key in keys:
        if not isinstance(value.get(key), list):
            raise InputError(f"{file} has no list {key!r}, as RACE's files have")
    if len({len(value[key]) for key in keys}) > 1:
        raise InputError(f"{file}: its lists {', '.join(keys)} have different lengths")
    rows = zip(*(value[key] for key in keys), strict=True)
    names = "question", "options", "answer"
    return [{"article": value.get("article")} | dict(zip(names, row, strict=False)) for row in rows]


def _question(value: dict[str, Any], where: str, answered: bool) -> RaceQuestion:
    for name in ("article", "question"):
        if not isinstance(value.get(name), str):
            raise InputError(
                f'{where} has no text {name!r}: a question needs article ("" if there is none), question, options and '
                "answer"
            )
    options = value.get("options")
    options = options if (own := written_list(options)) is None else own
    if not isinstance(options, list) or len(options) < 2 or not all(isinstance(option, str) for option in options):
        raise InputError(f'{where} has no list of two or more texts as \'options\', such as ["wet", "dry"]')
    given = answer = value.get("answer")
    if isinstance(answer, str) and len(answer) == 1 and answer in string.ascii_uppercase:
        answer = string.ascii_uppercase.index(answer)
    elif isinstance(answer, str) and answer.isascii() and answer.isdecimal():
        answer = int(answer)
        if given in options and options.index(given) != answer:
            raise InputError(f"{where}: answer {given!r} may be a number from 0 or an option's text: give its letter")
    elif isinstance(answer, str) and options.count(answer) == 1:
        answer = options.index(answer)
    if answer is None and not answered:
        answer = -1
    elif type(answer) is not int or not 0 <= answer < len(options):
        raise InputError(f"{where}: answer {given!r} is not the letter, number (from 0) or text of one of its options")
    texts = whole(value["article"]), whole(value["question"]), tuple(map(whole, options))
    return RaceQuestion(*texts, answer, where)


class ChoiceResults(ClassResults):
    """The results of multiple choice: one option for each question."""

    def measure(self, dev: Dev) -> dict[str, float]:
        return {"accuracy": labelling.accuracy(self.label, self.chosen()[0])}

    def panels(self, vocabulary: Vocabulary) -> list[Panel]:
        """A reliability diagram, and the questions whose right option has the least probability."""
        label, (predicted, confidence) = self.label, self.chosen()

        def shown(i: int) -> tuple[dict[str, Any], str]:
            article, right, chosen = (
                decoded(self.examples, vocabulary, (i, option), segment)
                for option, segment in ((label[i], FIRST), (label[i], SECOND), (predicted[i], SECOND))
            )
            about = {"label": f"option {label[i]}", "prediction": f"option {predicted[i]}"}
            sure = {"probability": round(float(confidence[i]), 6)}
            return about | sure, f"chosen: {chosen}\nright:  {right}\n\n{article}"

        return [Reliability(confidence, label == predicted), self.worst(label != predicted, shown)]

    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """choice, the option's number, option, its text, and the probabilities of all options."""
        found = []
        for question, row in zip(rows, np.exp(self.outputs["log_probs"]), strict=True):
            best, probabilities = int(row.argmax()), row.tolist()
            about = {"choice": best, "option": question.options[best]}
            found.append(about | {"probability": probabilities[best], "probabilities": probabilities})
        return found


class MultipleChoice(SequenceTask):
    """Softmax over the n sequences of an example, from one logit for each; label: int [b]."""

    config = XLNetMultipleChoiceConfig
    criterion = "accuracy"
    results = ChoiceResults
    one_class = True
    adds: ClassVar[Mapping[str, tuple[str, Any]]] = {
        "choice": ("choice", int),
        "option": ("option", str),
        "probability": ("probability", float),
    }
    signature = "choose"
    guide = predicting(
        "chooses among answers to a question about a text",
        "QUESTIONS.jsonl",
        '[{"article": "It rains.", "question": "It is _ .", "options": ["wet", "dry"]}]',
    )

    def read(self, path: str | Table, columns: Columns, labelled: bool = True, tags: Any = ()) -> Rows[RaceQuestion]:
        """Of RACE's folders, or of rows with one or with all questions of an article."""
        columns.refuse_names("multiple choice reads article, question, options and answer")
        faults, found = Faults(path if isinstance(path, str) else path.name), Rows[RaceQuestion]()
        table = read_rows(path, columns, faults, labelled)
        for line, values in table.rows:
            where = table.where(line)
            with faults.noted(line):
                if "questions" not in values:
                    found.append(_question(values, where, labelled))
                    continue
                for i, one in enumerate(_questions_of(values, where, labelled), 1):
                    with faults.noted(line):
                        found.append(_question(one, f"{where}, question {i}", labelled))
        faults.raise_any(len(found))
        if not found:
            raise InputError(f"{table.name} has no questions: give RACE's folder (train, dev, test) or JSON lines")
        found.understood = table.understood(counted(len(found), "question"))
        found.table = None if any("questions" in values for _, values in table.rows) else table
        _with_equal_options(found)
        if labelled and len(found) > _MANY and all(question.answer for question in found):
            found.remarks += ("the first option is never right: numbers of answers must be counted from 0",)
        return found

    def rows(self, values: Sequence[Any], columns: Columns) -> list[RaceQuestion]:
        """Dicts with article, question and options; InputError if one lacks something, or numbers of options differ."""
        found = []
        for i, value in enumerate(values, 1):
            if not isinstance(value, dict):
                raise InputError(f"question {i} is not a dict with article, question and options")
            found.append(_question(value, f"question {i}", False))
        return _with_equal_options(found)

    def needs(self, columns: Columns, names: Sequence[str]) -> tuple[str, ...]:
        return "article", "question", "options"

    def cells(self, row: RaceQuestion, prediction: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """The option and its probability."""
        return super().cells(row, {"option": prediction["option"], **prediction})

    def alike(self, item: RaceQuestion) -> int:
        return len(item.options)

    def group(self, item: RaceQuestion) -> str:
        return item.article

    def examples(self, rows: Sequence[RaceQuestion], plan: ExamplePlan) -> ExampleSet:
        """Questions, C options each: tokens, segments, padding [n, C, T] and, where labelled, label [n].

        A question becomes one sequence for each option: article SEP question and option SEP CLS. So does the official
        code, with a fault that this code does not have: if nothing is cut, the article of an option also holds the
        options before it.
        """
        import tensorflow as tf

        from txl_tf.data.examples.example_set import pair_examples
        from txl_tf.data.examples.layout import cut_article, encode

        t_len, count = plan.config.data.tgt_len, len(rows[0].options)
        label = np.array([question.answer for question in rows], np.int32) if plan.labelled else None

        def encoded(some: Sequence[RaceQuestion]) -> tuple[Pair, Pair]:
            articles = encode(plan.vocabulary, tf.constant([question.article for question in some]))
            articles = tf.gather(articles, np.repeat(np.arange(len(some)), count))
            questions = tf.repeat(tf.constant([question.question for question in some]), count)
            options = tf.constant([option for question in some for option in question.options])
            whole = articles, encode(plan.vocabulary, with_options(questions, options))
            return whole, cut_article(*whole, t_len)

        layout = {"tgt_len": t_len, "labelled": plan.labelled}
        return pair_examples(rows, plan, label, encoded, [count, t_len], layout)

    def source(self, rows: Sequence[RaceQuestion], number: int, columns: Columns) -> dict[str, Any]:
        one = rows[number]
        return {"row": one.where, "question": one.question, "options": list(one.options), "text": one.article}

    def losses(self, logits: tf.Tensor, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """-log p(label), [b], in nats; logits [b, n, 1]."""
        return super().losses(logits[..., 0], batch)

    def predictions(self, logits: tf.Tensor, config: Any) -> dict[str, tf.Tensor]:
        """log_probs [b, n], in nats."""
        return super().predictions(logits[..., 0], config)

    def facts(self, served: Served) -> dict[str, Any]:
        from txl_tf.data.examples.layout import MAX_QA

        return {"max_qa": MAX_QA}

    def signature_inputs(self, items: Sequence[RaceQuestion]) -> dict[str, Any]:
        names = {"articles": "article", "questions": "question", "options": "options"}
        return {name: [getattr(item, field) for item in items] for name, field in names.items()}

    def signatures(self, served: Served) -> Signatures:
        """`choose`: the most likely option of each question; see README."""
        import tensorflow as tf

        from txl_tf.data.examples.layout import cut_article, encode, join

        vocabulary, t_len = served.vocabulary, served.config.data.tgt_len

        def choose(articles: tf.Tensor, questions: tf.Tensor, options: tf.Tensor) -> dict[str, tf.Tensor]:
            rows, count = tf.shape(options, tf.int64)[0], tf.shape(options, tf.int64)[1]
            for given in (articles, questions):
                remedy = "give an article and options for each question"
                options = checked(options, tf.size(given, tf.int64), rows, remedy)
            texts = encode(vocabulary, with_options(tf.repeat(questions, count), tf.reshape(options, [-1])))
            first = encode(vocabulary, tf.repeat(articles, count))
            laid_out = join(vocabulary, *cut_article(first, texts, t_len))
            probabilities = tf.exp(served.outputs(*laid_out, tf.cast(count, tf.int32))["log_probs"])
            best = tf.argmax(probabilities, axis=1, output_type=tf.int32)
            return {
                "choice": best,
                "option": tf.gather(options, best, batch_dims=1),
                "probability": tf.reduce_max(probabilities, axis=1),
                "probabilities": probabilities,
            }

        texts, rows = tf.TensorSpec([None], tf.string), tf.TensorSpec([None, None], tf.string)
        return {choose: {"articles": texts, "questions": texts, "options": rows}}
