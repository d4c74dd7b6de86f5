"""A model's results on a set of examples: for each task its metrics, and its predictions in words."""

from __future__ import annotations

import abc
import json
import math
import typing
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from txl_tf.metrics import labelling
from txl_tf.metrics.answers import answer_scores, right_answers, word_f1
from txl_tf.metrics.entities import Tags, entity_scores
from txl_tf.metrics.labelling import confusion
from txl_tf.metrics.panels import FIRST, SECOND, ByLabel, Confusion, Panel, Reliability, Worst, decoded, texts_of

if typing.TYPE_CHECKING:  # these load TensorFlow
    from txl_tf.data.tasks.questions import QuestionExamples
    from txl_tf.data.tasks.tagged.examples import TaggedExamples
    from txl_tf.data.vocabularies import Vocabulary

HALF = 0.5
"""The threshold of a model that was not evaluated on dev, such as an imported one."""

WORST = 20
"""The number of examples that panels show."""

Outputs = Mapping[str, np.ndarray]
"""The outputs of a TaskObjective by name, [n, ..], for all examples in order."""

Dev = Mapping[str, float]
"""The model's metrics on dev, if these are other examples and they are known; else {}."""


class TaskResults(abc.ABC):
    """The results of one evaluation, from the outputs for its examples."""

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

    @abc.abstractmethod
    def panels(self, vocabulary: Vocabulary) -> list[Panel]:
        """The evaluation's pictures and texts for TensorBoard; texts are shown as the model reads them."""

    def worst(self, wrong: np.ndarray, shown: Callable[[int], tuple[str, str]]) -> Worst:
        """The wrong examples with the largest losses, the largest first; the first of equals first."""
        order = np.argsort(-self.outputs["loss"], kind="stable")
        return Worst(tuple(shown(i) for i in order[wrong[order]][:WORST].tolist()))


class ClassResults(TaskResults):
    """The results of classification: one class for each text."""

    def measure(self, dev: Dev) -> dict[str, float]:
        """accuracy, macro_f1 and matthews."""
        predicted, _ = self.chosen()
        measures = labelling.accuracy, labelling.macro_f1, labelling.matthews
        return {measure.__name__: measure(self.label, predicted) for measure in measures}

    def collapse(self, dev: Dev) -> str | None:
        """Reports that all predictions are one class or, with labels, that they are no better than that.

        If all labels are one class, it says nothing.
        """
        label, (predicted, _) = self.label, self.chosen()
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

    def panels(self, vocabulary: Vocabulary) -> list[Panel]:
        """A confusion matrix, a reliability diagram, and the examples whose label has the least probability."""
        names, label, (predicted, confidence) = self.examples.labels, self.label, self.chosen()

        def shown(i: int) -> tuple[str, str]:
            about = f"{names[predicted[i]]} ({confidence[i]:.1%}) instead of {names[label[i]]}"
            return f"{about}, loss {self.outputs['loss'][i]:.3f}", texts_of(self.examples, vocabulary, i)

        return [
            Confusion(names, confusion(label, predicted, len(names))),
            Reliability(confidence, label == predicted),
            self.worst(label != predicted, shown),
        ]

    def chosen(self) -> tuple[np.ndarray, np.ndarray]:
        """The predictions and their probabilities, [n] each."""
        log_probs = self.outputs["log_probs"]
        return log_probs.argmax(axis=1), np.exp(log_probs.max(axis=1))

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

    def panels(self, vocabulary: Vocabulary) -> list[Panel]:
        """The examples with the largest squared errors."""
        label, score = self.label, self.outputs["score"]

        def shown(i: int) -> tuple[str, str]:
            return f"{score[i]:.4g} instead of {label[i]:.4g}", texts_of(self.examples, vocabulary, i)

        return [self.worst(label != score, shown)]

    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """score."""
        return [{"score": score} for score in self.outputs["score"].tolist()]


class ChoiceResults(ClassResults):
    """The results of multiple choice: one option for each question."""

    def measure(self, dev: Dev) -> dict[str, float]:
        """accuracy."""
        return {"accuracy": labelling.accuracy(self.label, self.chosen()[0])}

    def panels(self, vocabulary: Vocabulary) -> list[Panel]:
        """A reliability diagram, and the questions whose right option has the least probability."""
        label, (predicted, confidence) = self.label, self.chosen()

        def shown(i: int) -> tuple[str, str]:
            article, right, chosen = (
                decoded(self.examples, vocabulary, (i, option), segment)
                for option, segment in ((label[i], FIRST), (label[i], SECOND), (predicted[i], SECOND))
            )
            about = f"option {predicted[i]} ({confidence[i]:.1%}) instead of {label[i]}"
            return f"{about}, loss {self.outputs['loss'][i]:.3f}", f"chosen: {chosen}\nright:  {right}\n\n{article}"

        return [Reliability(confidence, label == predicted), self.worst(label != predicted, shown)]

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

    def panels(self, vocabulary: Vocabulary) -> list[Panel]:
        """The counts of each label, and the wrong examples with the largest losses, at the best threshold for them."""
        label, probabilities = self.label.astype(bool), self.outputs["probabilities"]
        predicted = probabilities >= labelling.best_threshold(label, probabilities)

        def shown(i: int) -> tuple[str, str]:
            given, right = (
                ", ".join(np.array(self.examples.labels)[these[i]]) or "nothing" for these in (predicted, label)
            )
            about = f"{given} instead of {right}, loss {self.outputs['loss'][i]:.3f}"
            return about, texts_of(self.examples, vocabulary, i)

        counts = labelling.label_counts(label, predicted)
        return [ByLabel(self.examples.labels, *counts), self.worst((label != predicted).any(axis=1), shown)]

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

    examples: TaggedExamples

    def measure(self, dev: Dev) -> dict[str, float]:
        """f1, precision and recall of entities, and the accuracy of tags."""
        numbers = {name: i for i, name in enumerate(self.examples.labels)}
        rows = [[numbers[tag] for tag in reading.text.tags] for reading in self.examples.readings()]
        return entity_scores(self.examples.labels, rows, self.examples.tags(self.outputs), self.examples.scheme)

    def collapse(self, dev: Dev) -> str | None:
        """Reports that all words have the same tag, and should not."""
        found = {tag for row in self.examples.tags(self.outputs) for tag in row.tolist()}
        known = None if self.label is None else len(set(self.examples.known_labels().tolist()))
        words = sum(len(reading.part) for reading in self.examples.readings())
        if words > 1 and len(found) == 1 and known != 1:
            return f"all {words:,} words are predicted to have the tag {self.examples.labels[found.pop()]}"
        return None

    def panels(self, vocabulary: Vocabulary) -> list[Panel]:
        """A confusion matrix of tags, a reliability diagram, and the texts with most wrong tags."""
        examples, names = self.examples, self.examples.labels
        label = examples.of_words(examples.features["label"], -1)
        predicted, log_prob = examples.tags(self.outputs), examples.of_words(self.outputs["log_prob"], 0.0)
        rows = []
        for reading, right, found in zip(examples.readings(), label, predicted, strict=True):
            wrong = np.flatnonzero((right >= 0) & (right != found))
            words = reading.text.words
            shown = "\n".join(f"{words[i]}: {names[found[i]]} instead of {names[right[i]]}" for i in wrong)
            rows.append((len(wrong), f"{len(wrong)} of {len(words)} tags wrong", f"{reading.text.text}\n\n{shown}"))
        rows = sorted((row for row in rows if row[0]), key=lambda row: -row[0])[:WORST]
        right, found, sure = (np.concatenate(part) for part in (label, predicted, log_prob))
        known = right >= 0
        return [
            Confusion(names, confusion(right[known], found[known], len(names))),
            Reliability(np.exp(sure[known]), right[known] == found[known]),
            Worst(tuple(row[1:] for row in rows)),
        ]

    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """text, tokens, with tags, probabilities and places of each, and entities."""
        known, predictions = Tags(self.examples.labels, self.examples.scheme), []
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

    def panels(self, vocabulary: Vocabulary) -> list[Panel]:
        """How often it finds an answer that exists, at a threshold of 0; the surest answers without a right word."""
        found, wrong = np.zeros([2, 2], int), []
        for reading, one in zip(self.examples.readings(), self.examples.answered(self.outputs), strict=True):
            given, right = one.answer(0.0), right_answers(reading.question)
            found[int(not reading.question.answers), int(not given)] += 1
            if not max(word_f1(given, text) for text in right):
                sure = float(np.exp(one.candidates[0].log_prob)) if given else one.null_probability
                shown = (json.dumps(text, ensure_ascii=False) if text else "no answer" for text in (given, right[0]))
                about = f"{' instead of '.join(shown)}, probability {sure:.1%}"
                wrong.append((sure, about, f"{reading.question.text}\n\n{reading.text}"))
        worst = Worst(tuple(row[1:] for row in sorted(wrong, key=lambda row: -row[0])[:WORST]))
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
