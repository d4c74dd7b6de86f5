"""XLNets that answer questions about texts.

TensorFlow is imported when a function is called, so that importing this module does not load it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from txl_tf.errors import InputError
from txl_tf.families.base import FineTuning, TrainingData, lazy, predicting
from txl_tf.families.xlnet_heads import cut_lengths, fit_to_pretrained, training_examples
from txl_tf.metrics import answers, panels
from txl_tf.models.xlnet.head_config import XLNetAnsweringConfig

if TYPE_CHECKING:
    import numpy as np

    from txl_tf.data.tasks.corpus import TaskCorpus
    from txl_tf.data.tasks.questions import QuestionExamples
    from txl_tf.data.tasks.squad import Squad
    from txl_tf.data.tasks.table_files import Columns
    from txl_tf.data.vocabularies import Vocabulary


def _training_data(corpus: TaskCorpus, config: XLNetAnsweringConfig) -> TrainingData:
    return training_examples(corpus, config, corpus.train.features["learned"])


def _batch_spec(config: XLNetAnsweringConfig, lanes: int, training: bool) -> Any:
    import tensorflow as tf

    integers, columns = tf.TensorSpec([lanes], tf.int32), [lanes, config.data.tgt_len]
    return {
        "tokens": tf.TensorSpec(columns, tf.int32),
        "segments": tf.TensorSpec(columns, tf.int32),
        "padding": tf.TensorSpec(columns, tf.bool),
        "allowed": tf.TensorSpec(columns, tf.bool),
        "cls_index": integers,
        "start": integers,
        "end": integers,
        "impossible": tf.TensorSpec([lanes], tf.bool),
        "learned": tf.TensorSpec([lanes], tf.bool),
        "weight": tf.TensorSpec([lanes], tf.float32),
    }


def _read(path: str, columns: Columns, labelled: bool) -> Squad:
    from txl_tf.data.tasks.squad import read_squad

    columns.require_no_table("files in SQuAD's format")
    return read_squad(path, labelled, columns.encoding)


def _examples(
    rows: Squad,
    config: XLNetAnsweringConfig,
    vocabulary: Vocabulary,
    *,
    origin: Mapping[str, Any] = MappingProxyType({}),
    labels: tuple[str, ...] | None = None,
    directory: str | None = None,
    labelled: bool = True,
) -> QuestionExamples:
    from txl_tf.data.tasks.questions import squad_examples
    from txl_tf.data.tasks.windows import Layout
    from txl_tf.data.vocabularies import SubwordVocabulary

    if not isinstance(vocabulary, SubwordVocabulary):
        raise InputError(f"answering needs a vocabulary of subwords, and this one is of {vocabulary.unit}s")
    layout = Layout(config.data.tgt_len, config.data.max_query_len, config.data.doc_stride)
    decoding: dict[str, Any] = {"max_answer_len": config.eval.max_answer_len, "n_best": config.eval.n_best}
    decoding["find_answers"] = config.data.find_answers
    return squad_examples(rows, vocabulary, layout, dict(origin), directory, labelled, **decoding)


def _measure(outputs: Mapping[str, np.ndarray], examples: Any, dev: Mapping[str, float]) -> dict[str, float]:
    answered = examples.answered(outputs)
    return answers.answer_scores(
        [reading.question for reading in examples.readings()],
        {one.id: one.text for one in answered},
        {one.id: one.null_score for one in answered},
    )


def _collapse(outputs: Mapping[str, np.ndarray], examples: Any) -> str | None:
    starts = outputs["start"][:, 0]
    if len(starts) > 1 and (starts == examples.features["cls_index"]).all():
        return f"in all {len(starts):,} windows the most likely start is that of no answer"
    if len(starts) > 1 and (starts == starts[0]).all():
        return f"in all {len(starts):,} windows the most likely start is token {starts[0]:,}"
    return None


def no_answer_threshold(dev: Mapping[str, float]) -> float | None:
    """The null_score above which a question has no answer: that of the best F1 on dev, the metrics; 0 if these are not
    known; None, for always an answer, if all questions of dev have one."""
    return dev.get("best_f1_threshold") if dev else 0.0


def _predictions(
    outputs: Mapping[str, np.ndarray], examples: Any, rows: Squad, dev: Mapping[str, float]
) -> list[dict[str, Any]]:
    threshold = no_answer_threshold(dev)
    found = []
    for one in examples.answered(outputs):
        candidates = [
            {"text": text, "probability": math.exp(log_prob), "begin": begin, "end": end}
            for text, begin, end, log_prob, _ in one.candidates
        ]
        none = {"text": "", "probability": one.null_probability, "begin": None, "end": None}
        chosen = dict(candidates[0] if one.answer(threshold) else none)
        about = {"id": one.id, "answer": chosen.pop("text")} | chosen
        found.append(about | {"no_answer_probability": none["probability"], "candidates": candidates})
    return found


ANSWERING = FineTuning(
    config=XLNetAnsweringConfig,
    model=lazy("models.xlnet.with_head:XLNetWithAnswers"),
    objective=lazy("objectives.answering:Answering"),
    training_data=_training_data,
    batch_spec=_batch_spec,
    head="xlnet_with_answers/head/",
    read=_read,
    rows=lazy("data.tasks.squad:asked"),
    examples=_examples,
    fit=fit_to_pretrained,
    lengths=cut_lengths,
    measure=_measure,
    criterion="best_f1",
    collapse=_collapse,
    predictions=_predictions,
    panels=panels.answering,
    guide=predicting(
        "finds the answer to a question in a text",
        "QUESTIONS.json",
        '[{"question": "Where does it rain?", "context": "It rains in Spain."}]',
        "It answers with words of the text, and only if they are next to each other.",
    ),
)
"""Metrics are SQuAD's, in percent, with a threshold of 0 for no answer, and with the best threshold."""
