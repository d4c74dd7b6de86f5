"""The tasks of XLNets with other heads than the language model's, each learned from labelled examples.

Functions are named by text, so that TensorFlow loads only on use.
"""

from __future__ import annotations

import functools
from typing import Any

from txl_tf.families.base import FineTuning, lazy, predicting
from txl_tf.models.xlnet import head_config

_of_sequences = functools.partial(
    FineTuning, model=lazy("models.xlnet.with_head:XLNetWithLogits"), head="xlnet_with_logits/head/"
)
_of_tables = functools.partial(
    _of_sequences, read=lazy("data.tasks.tables:read_classes"), rows=lazy("data.tasks.tables:text_rows"), tables=True
)


def _learned_by(objective: str) -> dict[str, Any]:
    """The class of an objective, "module:Class" of txl_tf.objectives, and what it says of batches."""
    return {
        "objective": lazy(f"objectives.{objective}"),
        "batch_spec": lazy(f"objectives.{objective}.batch_spec"),
    }


_TEXTS = '["A text.", ("The first of a pair.", "The second.")]'

HEADS: dict[str, FineTuning] = {
    "classification": _of_tables(
        config=head_config.XLNetClassificationConfig,
        **_learned_by("sequences:Classification"),
        examples=lazy("data.tasks.table_examples:class_examples"),
        results=lazy("metrics.results:ClassResults"),
        criterion="accuracy",
        abilities=dict.fromkeys(("classify", "predict", "predict_file"), "tasks.predictor:Predictor"),
        guide=predicting(
            "tells to which class a text, or a pair of texts, belongs",
            "TEXTS.tsv",
            _TEXTS,
            "It always answers with one of its classes, whatever the text is about.",
        ),
    ),
    "regression": _of_tables(
        config=head_config.XLNetRegressionConfig,
        **_learned_by("sequences:Regression"),
        read=lazy("data.tasks.tables:read_scored"),
        examples=lazy("data.tasks.table_examples:scored_examples"),
        results=lazy("metrics.results:ScoreResults"),
        criterion="pearson",
        guide=predicting("gives a score to a text, or to a pair of texts", "TEXTS.tsv", _TEXTS),
    ),
    "multiple_choice": _of_sequences(
        config=head_config.XLNetMultipleChoiceConfig,
        **_learned_by("sequences:MultipleChoice"),
        read=lazy("data.tasks.race:read_race"),
        rows=lazy("data.tasks.race:question_rows"),
        examples=lazy("data.tasks.table_examples:question_examples"),
        results=lazy("metrics.results:ChoiceResults"),
        criterion="accuracy",
        guide=predicting(
            "chooses among answers to a question about a text",
            "QUESTIONS.jsonl",
            '[{"article": "It rains.", "question": "It is _ .", "options": ["wet", "dry"]}]',
        ),
    ),
    "answering": FineTuning(
        config=head_config.XLNetAnsweringConfig,
        model=lazy("models.xlnet.with_head:XLNetWithAnswers"),
        head="xlnet_with_answers/head/",
        **_learned_by("answering:Answering"),
        read=lazy("data.tasks.squad:read_squad"),
        rows=lazy("data.tasks.squad:asked"),
        examples=lazy("data.tasks.questions:squad_examples"),
        results=lazy("metrics.results:AnswerResults"),
        criterion="best_f1",
        without_dev="a question has no answer if its null_score is above 0",
        guide=predicting(
            "finds the answer to a question in a text",
            "QUESTIONS.json",
            '[{"question": "Where does it rain?", "context": "It rains in Spain."}]',
            "It answers with words of the text, and only if they are next to each other.",
        ),
    ),
    "multi_label": _of_tables(
        config=head_config.XLNetMultiLabelConfig,
        **_learned_by("sequences:MultiLabel"),
        read=lazy("data.tasks.label_sets:read_label_sets"),
        examples=lazy("data.tasks.table_examples:label_set_examples"),
        results=lazy("metrics.results:LabelSetResults"),
        criterion="micro_f1",
        threshold="threshold",
        without_dev="a text gets the labels whose probability is at least 0.5",
        guide=predicting("gives a text, or a pair of texts, each of its labels that fit", "TEXTS.tsv", _TEXTS),
    ),
    "tagging": FineTuning(
        config=head_config.XLNetTaggingConfig,
        model=lazy("models.xlnet.with_head:XLNetWithTags"),
        head="xlnet_with_tags/head/",
        **_learned_by("sequences:Tagging"),
        read=lazy("data.tasks.tagged.texts:read_tagged"),
        rows=lazy("data.tasks.tagged.texts:tagged_rows"),
        examples=lazy("data.tasks.tagged.examples:tagged_examples"),
        results=lazy("metrics.results:TagResults"),
        criterion="f1",
        words=True,
        guide=predicting(
            "gives a tag to every word of a text, such as a name's kind or a part of speech",
            "TEXTS.conll",
            '["A text.", ("Its", "words", ".")]',
            "It finds only things that had tags in its training texts, and in similar texts.",
        ),
    ),
}
"""The uses of XLNets with a head, by the name of the task."""
