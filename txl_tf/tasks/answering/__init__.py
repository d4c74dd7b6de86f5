"""Answering: a text holds the answer to a question, or does not. Texts of any length are read in windows.

squad.py reads files and compares answers, questions.py makes examples, and answers.py finds the best answers. graph.py
does the work of the last two in a SavedModel.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.table import Table
from txl_tf.metrics.task_results import WORST, Confusion, Dev, Panel, TaskResults, Worst, Wrong
from txl_tf.models.xlnet.head_config import XLNetAnswersConfig
from txl_tf.settings.groups import require, setting, usual
from txl_tf.tasks.answering.squad import Paragraph, Squad, answer_scores, asked, read_squad, right_answers, word_f1
from txl_tf.tasks.base import FineTuning, Served, Signatures, predicting
from txl_tf.tasks.settings import ExamplesConfig, ExamplesEvalConfig, XLNetHeadRunConfig

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from txl_tf.data.examples.example_set import ExamplePlan
    from txl_tf.data.vocabularies import Vocabulary
    from txl_tf.models.heads import AnswerLogits
    from txl_tf.tasks.answering.questions import QuestionExamples


@dataclasses.dataclass(frozen=True)
class QuestionsConfig(ExamplesConfig):
    """The batches of questions about texts, which are read in windows."""

    tgt_len: int = usual(512, "tokens of a window with its question, padding included, T", at_least=8)
    max_query_len: int = usual(64, "a longer question is cut to this many tokens", at_least=1)
    doc_stride: int = usual(128, "tokens from the start of one window of a text to that of the next", at_least=1)
    find_answers: bool = usual(
        False, "if an answer is not where the file says, take the one place in the text where it is"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.tgt_len >= self.max_query_len + 4,
            f"tgt_len={self.tgt_len} leaves no room for the text: it must be at least max_query_len + 4 = "
            f"{self.max_query_len + 4}",
        )


@dataclasses.dataclass(frozen=True)
class AnswersEvalConfig(ExamplesEvalConfig):
    """How a model that answers questions is evaluated and used."""

    max_answer_len: int = usual(64, "tokens of the longest answer", at_least=1)
    n_best: int = setting(5, "how many likely answers are reported for each question", at_least=1)


@dataclasses.dataclass(frozen=True)
class XLNetAnsweringConfig(XLNetHeadRunConfig):
    """A text holds the answer to a question, or does not."""

    task: ClassVar[str] = "answering"

    model: XLNetAnswersConfig = dataclasses.field(default_factory=XLNetAnswersConfig)
    data: QuestionsConfig = dataclasses.field(default_factory=QuestionsConfig)
    eval: AnswersEvalConfig = dataclasses.field(default_factory=AnswersEvalConfig)


def no_answer_threshold(dev: Dev) -> float | None:
    """The null_score above which a question has no answer: that of the best F1 on dev, the metrics; 0 if these are not
    known; None, for always an answer, if all questions of dev have one."""
    return dev.get("best_f1_threshold") if dev else 0.0


class AnswerResults(TaskResults):
    """The results of answering: an answer, or none, for each question."""

    examples: QuestionExamples

    def measure(self, dev: Dev) -> dict[str, float]:
        answered = self.examples.answered(self.outputs)
        questions = [reading.question for reading in self.examples.readings()]
        return answer_scores(questions, [one.text for one in answered], np.array([one.null_score for one in answered]))

    def collapse(self, dev: Dev) -> str | None:
        """Reports that the likeliest answers of all windows begin at the same token."""
        starts = self.outputs["start"][:, 0]
        if len(starts) > 1 and (starts == self.examples.features["cls_index"]).all():
            return f"in all {len(starts):,} windows the most likely start is that of no answer"
        if len(starts) > 1 and (starts == starts[0]).all():
            return f"in all {len(starts):,} windows the most likely start is token {starts[0]:,}"
        return None

    def panels(self, vocabulary: Vocabulary) -> list[Panel]:
        """How often it finds an answer that exists, at a threshold of 0; the surest answers without a right word."""
        found, wrong = np.zeros([2, 2], int), []
        answered = zip(self.examples.readings(), self.examples.answered(self.outputs), strict=True)
        for number, (reading, one) in enumerate(answered):
            given, right = one.answer(0.0), right_answers(reading.question)
            found[int(not reading.question.answers), int(not given)] += 1
            if not max(word_f1(given, text) for text in right):
                sure = float(np.exp(one.candidates[0].log_prob)) if given else one.null_probability
                about: dict[str, Any] = {"id": reading.question.id, "label": right[0], "prediction": given}
                about["probability"] = round(sure, 6)
                wrong.append((sure, Wrong(number, about, f"{reading.question.text}\n\n{reading.text}")))
        worst = Worst(tuple(one for _, one in sorted(wrong, key=lambda row: -row[0])[:WORST]))
        return [Confusion(("an answer", "no answer"), found), worst] if found[1].any() else [worst]

    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """id, answer, its probability and place, the probability of no answer, and the likely candidates."""
        threshold, found = no_answer_threshold(dev), []
        for one in self.examples.answered(self.outputs):
            candidates = [
                {"text": text, "probability": math.exp(log_prob), "begin": begin, "end": end}
                for text, begin, end, log_prob, _ in one.candidates
            ]
            none = {"text": "", "probability": one.null_probability, "begin": None, "end": None}
            chosen = dict(candidates[0] if one.answer(threshold) else none)
            about = {"id": one.id, "answer": chosen.pop("text")} | chosen
            found.append(about | {"no_answer_probability": none["probability"], "candidates": candidates})
        return found


class Answering(FineTuning):
    """Where the answer starts and ends in a text, and whether there is one."""

    config = XLNetAnsweringConfig
    head = "xlnet_with_answers/head/"
    criterion = "best_f1"
    results = AnswerResults
    noun = "text"
    adds: ClassVar[Mapping[str, tuple[str, Any]]] = {
        "answer": ("answer", str),
        "probability": ("probability", float),
        "begin": ("begin", int),
        "end": ("end", int),
    }
    signature = "answer"
    without_dev = "a question has no answer if its null_score is above 0"
    guide = predicting(
        "finds the answer to a question in a text",
        "QUESTIONS.json",
        '[{"question": "Where does it rain?", "context": "It rains in Spain."}]',
        "It answers with words of the text, and only if they are next to each other.",
    )

    def model(self, settings: Any) -> keras.Model:
        from txl_tf.models.xlnet.with_head import XLNetWithAnswers

        return XLNetWithAnswers(settings)

    def logits(self, model: Any, batch: dict[str, tf.Tensor], config: Any, **options: Any) -> AnswerLogits:
        """Given the true starts; batch: see `questions.examples`."""
        names = ("tokens", "allowed", "cls_index", "start", "segments", "padding")
        return model(**{name: batch[name] for name in names}, **options)

    def losses(self, logits: AnswerLogits, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """The loss of XLNet's official code for SQuAD 2.0, [b], in nats.

        It is (CE(start) + CE(end)) / 2 + BCE(impossible) / 2. CE(start) is the cross entropy of the column where the
        answer starts, CE(end) of the column where it ends, given the true start. BCE(impossible) is the binary cross
        entropy of whether there is no answer. If the answer is not in the example, start and end are the column of CLS.

        Files in which every question has an answer (SQuAD 1.1) are learned in the same way. There examples without an
        answer are windows that do not hold it, and "impossible" means that it is in another window.

        A model with answer_head="simple" learns only the two cross entropies, as XLNetForQuestionAnsweringSimple does.
        For it, no answer means start and end at the column of CLS.
        """
        import tensorflow as tf

        start, end = (
            tf.nn.sparse_softmax_cross_entropy_with_logits(batch[name], getattr(logits, name))
            for name in ("start", "end")
        )
        if logits.impossible is None:
            return (start + end) / 2
        target = tf.cast(batch["impossible"], logits.impossible.dtype)
        impossible = tf.nn.sigmoid_cross_entropy_with_logits(target, logits.impossible)
        return (start + end + impossible) / 2

    def outputs(self, model: Any, batch: dict[str, tf.Tensor], config: Any) -> dict[str, tf.Tensor]:
        """The fields of BestAnswers by name, and the loss."""
        from txl_tf.models.xlnet.model import Text

        hidden, _, _ = model.body(batch["tokens"], text=Text(batch["segments"], padding=batch["padding"]))
        given = hidden, batch["allowed"], batch["cls_index"]
        found = model.head.best(*given, model.config.start_n_top, model.config.end_n_top)._asdict()
        if "start" in batch:
            found["loss"] = self.losses(model.head(*given, batch["start"]), batch)
        return found

    def read(self, path: str | Table, columns: Columns, labelled: bool = True, tags: Sequence[str] = ()) -> Squad:
        return read_squad(path, columns, labelled)

    def rows(self, values: Sequence[Any], columns: Columns) -> Squad:
        return asked(values)

    def needs(self, columns: Columns, names: Sequence[str]) -> tuple[str, ...]:
        return "question", "context"

    def cells(self, row: Paragraph, prediction: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """The answer and its probability."""
        return super().cells(row, {"answer": prediction["answer"], **prediction})

    def joined(self, items: Sequence[Paragraph]) -> Squad:
        return Squad(items)

    def examples(self, rows: Squad, plan: ExamplePlan) -> QuestionExamples:
        from txl_tf.tasks.answering.questions import squad_examples

        return squad_examples(rows, plan)

    def served(self, model: Any, rows: dict[str, tf.Tensor], config: Any) -> dict[str, tf.Tensor]:
        return self.outputs(model, rows, config)

    def row_specs(self, t_len: int, count: int | None = None) -> dict[str, tf.TensorSpec]:
        import tensorflow as tf

        specs = super().row_specs(t_len, count)
        return specs | {"allowed": specs["padding"], "cls_index": tf.TensorSpec([count], tf.int32)}

    def signature_inputs(self, items: Sequence[Paragraph]) -> dict[str, Any]:
        return {"questions": [item.questions[0].text for item in items], "contexts": [item.text for item in items]}

    def signature_result(self, outputs: dict[str, Any], item: Paragraph) -> dict[str, Any]:
        """As of a model without a result on dev: there is no answer if that has better than even odds."""
        none = outputs["no_answer_probability"]
        if none > 0.5 or outputs["begin"] < 0:
            return {"answer": "", "probability": none, "begin": None, "end": None}
        return outputs | {"answer": outputs["answers"]}

    def signatures(self, served: Served) -> Signatures:
        """`answer`; `answer_part` and `answer_whole` do the same in several calls."""
        from txl_tf.tasks.answering.graph import signatures

        return signatures(served)
