"""A model's results on a set of examples: for each task its metrics, and its predictions in words."""

from __future__ import annotations

import abc
import math
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np

from txl_tf.metrics import labelling, panels
from txl_tf.metrics.answers import answer_scores
from txl_tf.metrics.entities import Tags, entity_scores
from txl_tf.metrics.panels import Outputs, Panel

if typing.TYPE_CHECKING:  # these load TensorFlow
    from txl_tf.data.tasks.questions import QuestionExamples
    from txl_tf.data.tasks.tagged.examples import TaggedExamples
    from txl_tf.data.vocabularies import Vocabulary

HALF = 0.5
"""The threshold of a model that was not evaluated on dev, such as an imported one."""

Dev = Mapping[str, float]
"""The model's metrics on dev, if these are other examples and they are known; else {}."""


class TaskResults(abc.ABC):
    """The results of one evaluation, from the outputs for its examples; `draw` is the task's function of `panels`."""

    draw: staticmethod[[Outputs, Any, Vocabulary], list[Panel]]

    def __init__(self, outputs: Outputs, examples: Any):
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

    def panels(self, vocabulary: Vocabulary) -> list[Panel]:
        """The evaluation's pictures and texts for TensorBoard."""
        return self.draw(self.outputs, self.examples, vocabulary)


class ClassResults(TaskResults):
    """The results of classification: one class for each text."""

    draw = staticmethod(panels.classification)

    def measure(self, dev: Dev) -> dict[str, float]:
        """accuracy, macro_f1 and matthews."""
        predicted = self.outputs["log_probs"].argmax(axis=1)
        measures = labelling.accuracy, labelling.macro_f1, labelling.matthews
        return {measure.__name__: measure(self.label, predicted) for measure in measures}

    def collapse(self, dev: Dev) -> str | None:
        """Reports that all predictions are one class or, with labels, that they are no better than that.

        If all labels are one class, it says nothing.
        """
        predicted, label = self.outputs["log_probs"].argmax(axis=1), self.label
        if label is not None and np.ptp(label) == 0:
            return None
        if len(predicted) > 1 and np.ptp(predicted) == 0:
            return f"all {len(predicted):,} examples are predicted to be of one class"
        if label is None:
            return None
        loss = float(np.mean(self.outputs["loss"]))
        # A model that is too sure of itself may have a high loss and still be right, so both must be bad.
        counts = np.bincount(label, minlength=self.outputs["log_probs"].shape[1])
        prior, largest = labelling.entropy(counts), counts.max() / len(label)
        if loss >= prior and labelling.accuracy(label, predicted) <= largest:
            return f"it is no better than always predicting the largest class (loss {loss:.4f}, there {prior:.4f})"
        return None

    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """label, its probability, and the probabilities of all classes by name."""
        found = []
        for row in np.exp(self.outputs["log_probs"]):
            probabilities = dict(zip(self.examples.labels, row.tolist(), strict=True))
            label = self.examples.labels[row.argmax()]
            found.append({"label": label, "probability": probabilities[label], "probabilities": probabilities})
        return found


class ScoreResults(TaskResults):
    """The results of regression: a number for each text."""

    draw = staticmethod(panels.regression)

    def measure(self, dev: Dev) -> dict[str, float]:
        """pearson and spearman."""
        measures = labelling.pearson, labelling.spearman
        return {measure.__name__: measure(self.label, self.outputs["score"]) for measure in measures}

    def collapse(self, dev: Dev) -> str | None:
        """Reports that all scores are nearly the same or, with labels, that they are no better than that."""
        score, label = self.outputs["score"], self.label
        if len(score) > 1 and np.ptp(score) < 1e-3 * (np.abs(score).mean() if label is None else np.std(label)):
            return f"all {len(score):,} examples are predicted to have nearly the same score"
        if label is None:
            return None
        loss, prior = float(np.mean(self.outputs["loss"])), float(np.var(label, dtype=np.float64))
        if loss >= prior:
            return f"its squared error is {loss:.4f}, and always predicting the mean has {prior:.4f}"
        return None

    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """score."""
        return [{"score": score} for score in self.outputs["score"].tolist()]


class ChoiceResults(ClassResults):
    """The results of multiple choice: one option for each question."""

    draw = staticmethod(panels.multiple_choice)

    def measure(self, dev: Dev) -> dict[str, float]:
        """accuracy."""
        return {"accuracy": labelling.accuracy(self.label, self.outputs["log_probs"].argmax(axis=1))}

    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """choice, the option's number, option, its text, and the probabilities of all options."""
        found = []
        for question, row in zip(rows, np.exp(self.outputs["log_probs"]), strict=True):
            best = int(row.argmax())
            probabilities = row.tolist()
            about = {"choice": best, "option": question.options[best]}
            found.append(about | {"probability": probabilities[best], "probabilities": probabilities})
        return found


def label_threshold(dev: Dev) -> float:
    """The least probability of a label that is given: the best threshold on dev, if it is known."""
    return dev.get("threshold", HALF)


class LabelSetResults(TaskResults):
    """The results of multi-label classification; the threshold of its metrics is the best on dev."""

    draw = staticmethod(panels.multi_label)

    def measure(self, dev: Dev) -> dict[str, float]:
        """micro_f1, macro_f1, exact and threshold."""
        return labelling.multi_label(self.label, self.outputs["probabilities"], dev.get("threshold"))

    def collapse(self, dev: Dev) -> str | None:
        """Reports that all texts have the same labels, at the threshold of dev or the best on these examples."""
        probabilities, known = self.outputs["probabilities"], dev or self.label is None
        predicted = probabilities >= (
            label_threshold(dev) if known else labelling.best_threshold(self.label, probabilities)
        )
        if len(predicted) > 1 and (predicted == predicted[0]).all():
            return f"all {len(predicted):,} examples are predicted to have the same labels"
        return None

    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """labels, those above the threshold, and the probabilities of all labels by name."""
        threshold, found = label_threshold(dev), []
        for row in self.outputs["probabilities"].tolist():
            probabilities = dict(zip(self.examples.labels, row, strict=True))
            given = [name for name, probability in probabilities.items() if probability >= threshold]
            found.append({"labels": given, "probabilities": probabilities})
        return found


class TagResults(TaskResults):
    """The results of tagging: a tag for each word. Its metrics are those of seqeval."""

    draw = staticmethod(panels.tagging)
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


def no_answer_threshold(dev: Dev) -> float | None:
    """The null_score above which a question has no answer: that of the best F1 on dev, the metrics; 0 if these are not
    known; None, for always an answer, if all questions of dev have one."""
    return dev.get("best_f1_threshold") if dev else 0.0


class AnswerResults(TaskResults):
    """The results of answering: an answer, or none, for each question."""

    draw = staticmethod(panels.answering)
    examples: QuestionExamples

    def measure(self, dev: Dev) -> dict[str, float]:
        """SQuAD's scores, in percent, with a threshold of 0 for no answer, and with the best one."""
        answered = self.examples.answered(self.outputs)
        return answer_scores(
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
