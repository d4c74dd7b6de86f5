"""Data for pictures, texts and tables about an evaluation on dev.

training/board/draw_panels.py draws them for TensorBoard, and metrics/error_files.py makes files of them.

Each function takes the Outputs, the ExampleSet, and the Vocabulary, to show texts as the model reads them.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping

import numpy as np

from txl_tf.metrics.answers import right_answers, word_f1
from txl_tf.metrics.labelling import best_threshold, confusion, label_counts

if typing.TYPE_CHECKING:
    from txl_tf.data.tasks.examples import ExampleSet
    from txl_tf.data.vocabularies import Vocabulary

Outputs = Mapping[str, np.ndarray]
"""The outputs of a TaskObjective by name, [n, ..], for all examples in order."""

WORST = 20
"""The number of examples that are shown."""

FIRST, SECOND = 0, 1  # segment ids, as in data/tasks/layout.py


class Confusion(typing.NamedTuple):
    """How often examples of each class are predicted as each class.

    labels: the names of C classes.
    counts: int [C, C], of labels in rows and predictions in columns.
    """

    labels: tuple[str, ...]
    counts: np.ndarray


class ByLabel(typing.NamedTuple):
    """How often each of C labels is right, where a text may have any number of them.

    labels: their names.
    right, there, predicted: int [C], how often it is predicted rightly, there, and predicted.
    """

    labels: tuple[str, ...]
    right: np.ndarray
    there: np.ndarray
    predicted: np.ndarray


class Reliability(typing.NamedTuple):
    """How sure the model is of its predictions, and whether they are right.

    confidence: [n], the probability of each example's prediction.
    right: bool [n].
    """

    confidence: np.ndarray
    right: np.ndarray


class Worst(typing.NamedTuple):
    """The worst predictions, the worst first: for each a heading and a text."""

    rows: tuple[tuple[str, str], ...]


Panel = Confusion | ByLabel | Reliability | Worst


def classification(outputs: Outputs, examples: ExampleSet, vocabulary: Vocabulary) -> list[Panel]:
    """A confusion matrix, a reliability diagram, and the examples whose label has the least probability."""
    label, predicted, confidence = _chosen(outputs, examples)
    names = examples.labels
    rows = []
    for i in _most_wrong(outputs["loss"], label != predicted):
        about = f"{names[predicted[i]]} ({confidence[i]:.1%}) instead of {names[label[i]]}"
        rows.append((f"{about}, loss {outputs['loss'][i]:.3f}", _texts(examples, vocabulary, i)))
    return [
        Confusion(names, confusion(label, predicted, len(names))),
        Reliability(confidence, label == predicted),
        Worst(tuple(rows)),
    ]


def multi_label(outputs: Outputs, examples: ExampleSet, vocabulary: Vocabulary) -> list[Panel]:
    """The counts of each label, and the wrong examples with the largest losses, at the best threshold for them all."""
    label, probabilities = examples.features["label"].astype(bool), outputs["probabilities"]
    predicted = probabilities >= best_threshold(label, probabilities)

    def named(these: np.ndarray) -> str:
        return ", ".join(np.array(examples.labels)[these]) or "nothing"

    rows = []
    for i in _most_wrong(outputs["loss"], (label != predicted).any(axis=1)):
        about = f"{named(predicted[i])} instead of {named(label[i])}, loss {outputs['loss'][i]:.3f}"
        rows.append((about, _texts(examples, vocabulary, i)))
    return [ByLabel(examples.labels, *label_counts(label, predicted)), Worst(tuple(rows))]


def regression(outputs: Outputs, examples: ExampleSet, vocabulary: Vocabulary) -> list[Panel]:
    """The examples with the largest squared errors."""
    label, score = examples.features["label"], outputs["score"]
    worst = _most_wrong(outputs["loss"], label != score)
    return [Worst(tuple((f"{score[i]:.4g} instead of {label[i]:.4g}", _texts(examples, vocabulary, i)) for i in worst))]


def multiple_choice(outputs: Outputs, examples: ExampleSet, vocabulary: Vocabulary) -> list[Panel]:
    """A reliability diagram, and the questions whose right option has the least probability."""
    label, predicted, confidence = _chosen(outputs, examples)
    rows = []
    for i in _most_wrong(outputs["loss"], label != predicted):
        article, right, chosen = (
            _decoded(examples, vocabulary, (i, option), segment)
            for option, segment in ((label[i], FIRST), (label[i], SECOND), (predicted[i], SECOND))
        )
        heading = f"option {predicted[i]} ({confidence[i]:.1%}) instead of {label[i]}, loss {outputs['loss'][i]:.3f}"
        rows.append((heading, f"chosen: {chosen}\nright:  {right}\n\n{article}"))
    return [Reliability(confidence, label == predicted), Worst(tuple(rows))]


def answering(outputs: Outputs, examples: typing.Any, vocabulary: Vocabulary) -> list[Panel]:
    """How often the model finds an answer that exists, with a threshold of 0; and the surest answers without a right
    word. `examples` is a QuestionExamples."""
    found, wrong = np.zeros([2, 2], int), []
    for reading, one in zip(examples.readings(), examples.answered(outputs), strict=True):
        given, right = one.answer(0.0), right_answers(reading.question)
        none = one.null_probability
        found[int(not reading.question.answers), int(not given)] += 1
        if not max(word_f1(given, text) for text in right):
            sure = float(np.exp(one.candidates[0].log_prob)) if given else none
            shown = (json.dumps(text, ensure_ascii=False) if text else "no answer" for text in (given, right[0]))
            wrong.append((sure, " instead of ".join(shown), f"{reading.question.text}\n\n{reading.text}"))
    wrong.sort(key=lambda row: -row[0])
    worst = Worst(tuple((f"{about}, probability {sure:.1%}", text) for sure, about, text in wrong[:WORST]))
    return [Confusion(("an answer", "no answer"), found), worst] if found[1].any() else [worst]


def tagging(outputs: Outputs, examples: typing.Any, vocabulary: Vocabulary) -> list[Panel]:
    """A confusion matrix of tags, a reliability diagram, and the texts with most wrong tags. `examples` is a
    TaggedExamples."""
    names = examples.labels
    label = examples.of_words(examples.features["label"], -1)
    predicted, log_prob = examples.tags(outputs), examples.of_words(outputs["log_prob"], 0.0)
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
        Worst(tuple((about, text) for _, about, text in rows)),
    ]


def _chosen(outputs: Outputs, examples: ExampleSet) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, predictions and the predictions' probabilities, [n] each."""
    log_probs = outputs["log_probs"]
    return examples.features["label"], log_probs.argmax(axis=1), np.exp(log_probs.max(axis=1))


def _most_wrong(loss: np.ndarray, wrong: np.ndarray) -> list[int]:
    """The numbers of the wrong examples with the largest losses, the largest first; the first of equals first."""
    order = np.argsort(-loss, kind="stable")
    return order[wrong[order]][:WORST].tolist()


def _texts(examples: ExampleSet, vocabulary: Vocabulary, i: int) -> str:
    """The text of an example, or its two texts, as the model reads them."""
    sides = [_decoded(examples, vocabulary, (i,), segment) for segment in (FIRST, SECOND)]
    return "\n\n".join(side for side in sides if side)


def _decoded(examples: ExampleSet, vocabulary: Vocabulary, place: tuple[int, ...], segment: int) -> str:
    """The text of one segment of a row of tokens."""
    tokens, segments, padding = (examples.features[name][place] for name in ("tokens", "segments", "padding"))
    return vocabulary.decode(tokens[(segments == segment) & ~padding].tolist()).strip()
