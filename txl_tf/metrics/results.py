"""A model's results on a set of examples: for each task its metrics, and its predictions in words."""

from __future__ import annotations

import abc
import math
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np

from txl_tf.metrics import answers, labelling, multi_label, panels
from txl_tf.metrics.entities import Tags, entity_scores

if typing.TYPE_CHECKING:  # these load TensorFlow
    from txl_tf.data.tasks.questions import QuestionExamples
    from txl_tf.data.tasks.tagged.examples import TaggedExamples
    from txl_tf.data.vocabularies import Vocabulary

HALF = 0.5
"""The threshold of a model that was not evaluated on dev, such as an imported one."""

Dev = Mapping[str, float]
"""The model's metrics on dev, if these are other examples and they are known; else {}."""


class TaskResults(abc.ABC):
    """The results of one evaluation, from the TaskObjective's outputs by name, [n, ..], for all examples in order."""

    def __init__(self, outputs: labelling.Outputs, examples: Any):
        self.outputs, self.examples = outputs, examples
        self.label = examples.features.get("label")

    @abc.abstractmethod
    def measure(self, dev: Dev) -> dict[str, float]:
        """The task's standard metrics; the examples are labelled."""

    @abc.abstractmethod
    def collapse(self, dev: Dev) -> str | None:
        """How the model has collapsed, as the end of a sentence, or None."""

    @abc.abstractmethod
    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """The prediction for each row, as JSON values."""

    @abc.abstractmethod
    def panels(self, vocabulary: Vocabulary) -> list[panels.Panel]:
        """The evaluation's pictures and texts for TensorBoard."""


class ClassResults(TaskResults):
    """The results of classification: one class for each text."""

    def measure(self, dev: Dev) -> dict[str, float]:
        """accuracy, macro_f1 and matthews."""
        return labelling.classification(self.outputs, self.label)

    def collapse(self, dev: Dev) -> str | None:
        """See `collapse_of_classes`."""
        return labelling.collapse_of_classes(self.outputs, self.label)

    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """label, its probability, and the probabilities of all classes by name."""
        found = []
        for row in np.exp(self.outputs["log_probs"]):
            probabilities = dict(zip(self.examples.labels, row.tolist(), strict=True))
            label = self.examples.labels[row.argmax()]
            found.append({"label": label, "probability": probabilities[label], "probabilities": probabilities})
        return found

    def panels(self, vocabulary: Vocabulary) -> list[panels.Panel]:
        """See `panels.classification`."""
        return panels.classification(self.outputs, self.examples, vocabulary)


class ScoreResults(TaskResults):
    """The results of regression: a number for each text."""

    def measure(self, dev: Dev) -> dict[str, float]:
        """pearson and spearman."""
        return labelling.regression(self.outputs, self.label)

    def collapse(self, dev: Dev) -> str | None:
        """See `collapse_of_scores`."""
        return labelling.collapse_of_scores(self.outputs, self.label)

    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """score."""
        return [{"score": score} for score in self.outputs["score"].tolist()]

    def panels(self, vocabulary: Vocabulary) -> list[panels.Panel]:
        """See `panels.regression`."""
        return panels.regression(self.outputs, self.examples, vocabulary)


class ChoiceResults(ClassResults):
    """The results of multiple choice: one option for each question."""

    def measure(self, dev: Dev) -> dict[str, float]:
        """accuracy."""
        return labelling.multiple_choice(self.outputs, self.label)

    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """choice, the option's number, option, its text, and the probabilities of all options."""
        found = []
        for question, row in zip(rows, np.exp(self.outputs["log_probs"]), strict=True):
            best = int(row.argmax())
            probabilities = row.tolist()
            about = {"choice": best, "option": question.options[best]}
            found.append(about | {"probability": probabilities[best], "probabilities": probabilities})
        return found

    def panels(self, vocabulary: Vocabulary) -> list[panels.Panel]:
        """See `panels.multiple_choice`."""
        return panels.multiple_choice(self.outputs, self.examples, vocabulary)


def label_threshold(dev: Dev) -> float:
    """The least probability of a label that is given: the best threshold on dev, if it is known."""
    return dev.get("threshold", HALF)


class LabelSetResults(TaskResults):
    """The results of multi-label classification; the threshold of its metrics is the best on dev."""

    def measure(self, dev: Dev) -> dict[str, float]:
        """micro_f1, macro_f1, exact and threshold."""
        return multi_label.multi_label(self.label, self.outputs["probabilities"], dev.get("threshold"))

    def collapse(self, dev: Dev) -> str | None:
        """Reports that all texts have the same labels, at the threshold of dev or the best on these examples."""
        probabilities = self.outputs["probabilities"]
        best = (
            label_threshold(dev) if dev or self.label is None else multi_label.best_threshold(self.label, probabilities)
        )
        return multi_label.collapse(probabilities, best)

    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """labels, those above the threshold, and the probabilities of all labels by name."""
        threshold, found = label_threshold(dev), []
        for row in self.outputs["probabilities"].tolist():
            probabilities = dict(zip(self.examples.labels, row, strict=True))
            given = [name for name, probability in probabilities.items() if probability >= threshold]
            found.append({"labels": given, "probabilities": probabilities})
        return found

    def panels(self, vocabulary: Vocabulary) -> list[panels.Panel]:
        """See `panels.multi_label`."""
        return panels.multi_label(self.outputs, self.examples, vocabulary)


class TagResults(TaskResults):
    """The results of tagging: a tag for each word. Its metrics are those of seqeval."""

    examples: TaggedExamples

    def measure(self, dev: Dev) -> dict[str, float]:
        """f1, precision and recall of entities, and the accuracy of tags."""
        numbers = {name: i for i, name in enumerate(self.examples.labels)}
        rows = [[numbers[tag] for tag in reading.text.tags] for reading in self.examples.readings()]
        return entity_scores(self.examples.labels, rows, self.examples.tags(self.outputs))

    def collapse(self, dev: Dev) -> str | None:
        """Reports that all words have the same tag, and should not."""
        found = {tag for row in self.examples.tags(self.outputs) for tag in row.tolist()}
        known = None if self.label is None else len(set(self.examples.known_labels().tolist()))
        words = sum(len(reading.part) for reading in self.examples.readings())
        if words > 1 and len(found) == 1 and known != 1:
            return f"all {words:,} words are predicted to have the tag {self.examples.labels[found.pop()]}"
        return None

    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """text, tokens, with tags, probabilities and places of each, and entities."""
        known, predictions = Tags(self.examples.labels), []
        probabilities = self.examples.of_words(np.exp(self.outputs["log_prob"]), 1.0)
        for row, tags, probability in zip(rows, self.examples.tags(self.outputs), probabilities, strict=True):
            entities = []
            for kind, first, end in known.entities(tags):
                begin, stop = row.places[first][0], row.places[end - 1][1]
                entities.append({"label": kind, "text": row.text[begin:stop], "begin": begin, "end": stop})
            predictions.append(
                {
                    "text": row.text,
                    "tokens": row.words,
                    "tags": [self.examples.labels[tag] for tag in tags],
                    "probabilities": probability.tolist(),
                    "places": [list(place) for place in row.places],
                    "entities": entities,
                }
            )
        return predictions

    def panels(self, vocabulary: Vocabulary) -> list[panels.Panel]:
        """See `panels.tagging`."""
        return panels.tagging(self.outputs, self.examples, vocabulary)


def no_answer_threshold(dev: Dev) -> float | None:
    """The null_score above which a question has no answer: that of the best F1 on dev, the metrics; 0 if these are not
    known; None, for always an answer, if all questions of dev have one."""
    return dev.get("best_f1_threshold") if dev else 0.0


class AnswerResults(TaskResults):
    """The results of answering: an answer, or none, for each question."""

    examples: QuestionExamples

    def measure(self, dev: Dev) -> dict[str, float]:
        """SQuAD's scores, in percent, with a threshold of 0 for no answer, and with the best one."""
        answered = self.examples.answered(self.outputs)
        return answers.answer_scores(
            [reading.question for reading in self.examples.readings()],
            {one.id: one.text for one in answered},
            {one.id: one.null_score for one in answered},
        )

    def collapse(self, dev: Dev) -> str | None:
        """Reports that the likeliest answers of all windows begin at the same token."""
        starts = self.outputs["start"][:, 0]
        if len(starts) > 1 and (starts == self.examples.features["cls_index"]).all():
            return f"in all {len(starts):,} windows the most likely start is that of no answer"
        if len(starts) > 1 and (starts == starts[0]).all():
            return f"in all {len(starts):,} windows the most likely start is token {starts[0]:,}"
        return None

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

    def panels(self, vocabulary: Vocabulary) -> list[panels.Panel]:
        """See `panels.answering`."""
        return panels.answering(self.outputs, self.examples, vocabulary)
