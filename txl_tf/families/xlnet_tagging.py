"""XLNets that give a tag to every word of a text: names, parts of speech.

TensorFlow is imported when a function is called, so that importing this module does not load it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from txl_tf.errors import InputError
from txl_tf.families.base import FineTuning, lazy, predicting
from txl_tf.families.xlnet_heads import cut_lengths, sequence_spec, shared_settings, training_examples
from txl_tf.metrics import panels
from txl_tf.metrics.entities import Tags, entity_scores
from txl_tf.models.xlnet.head_config import XLNetTaggingConfig

if TYPE_CHECKING:
    import numpy as np

    from txl_tf.data.tasks.examples import ExampleSet
    from txl_tf.data.tasks.tagged.examples import TaggedExamples
    from txl_tf.data.tasks.tagged.files import TaggedText
    from txl_tf.data.vocabularies import Vocabulary
    from txl_tf.settings.run import Config


def _batch_spec(config: XLNetTaggingConfig, lanes: int, training: bool) -> Any:
    return sequence_spec(config, lanes, "int32", of_each=[config.data.tgt_len * config.data.max_segments])


def _examples(
    rows: Sequence[TaggedText],
    config: XLNetTaggingConfig,
    vocabulary: Vocabulary,
    *,
    origin: Mapping[str, Any] = MappingProxyType({}),
    labels: tuple[str, ...] | None = None,
    directory: str | None = None,
    labelled: bool = True,
) -> TaggedExamples:
    from txl_tf.data.tasks.tagged.examples import tag_names, tagged_examples
    from txl_tf.data.vocabularies import SubwordVocabulary

    if not isinstance(vocabulary, SubwordVocabulary):
        raise InputError(f"tagging needs a vocabulary of subwords, and this one is of {vocabulary.unit}s")
    labels = tag_names(rows) if labels is None else labels
    if len(labels) < 2:
        raise InputError(f"{rows[0].where}: all words have the tag {labels[0]!r}: there is nothing to tell apart")
    layout = config.data.tgt_len, config.data.max_segments
    return tagged_examples(rows, vocabulary, *layout, labels, dict(origin), directory, labelled)


def _fit(config: XLNetTaggingConfig, pretrained: Config, train: ExampleSet) -> XLNetTaggingConfig:
    """As for other tasks, with all tokens remembered; a model without memory gets a memory of one segment."""
    shared = shared_settings(config, pretrained)
    memory = {"reuse_len": 0, "mem_init": "empty", "mem_len": shared["mem_len"] or config.data.tgt_len}
    return config.replace(model=shared | memory | {"n_class": len(train.labels)})


def _measure(outputs: Mapping[str, np.ndarray], examples: Any, dev: Mapping[str, float]) -> dict[str, float]:
    numbers = {name: i for i, name in enumerate(examples.labels)}
    rows = [[numbers[tag] for tag in reading.text.tags] for reading in examples.readings()]
    return entity_scores(examples.labels, rows, examples.tags(outputs))


def _collapse(outputs: Mapping[str, np.ndarray], examples: Any) -> str | None:
    found = {tag for row in examples.tags(outputs) for tag in row.tolist()}
    known = len(set(examples.known_labels().tolist())) if "label" in examples.features else None
    words = sum(len(reading.part) for reading in examples.readings())
    if words > 1 and len(found) == 1 and known != 1:
        return f"all {words:,} words are predicted to have the tag {examples.labels[found.pop()]}"
    return None


def _predictions(
    outputs: Mapping[str, np.ndarray], examples: Any, rows: Sequence[TaggedText], dev: Mapping[str, float]
) -> list[dict[str, Any]]:
    import numpy as np

    known, predictions = Tags(examples.labels), []
    probabilities = examples.of_words(np.exp(outputs["log_prob"]), 1.0)
    for row, tags, probability in zip(rows, examples.tags(outputs), probabilities, strict=True):
        entities = []
        for kind, first, end in known.entities(tags):
            begin, stop = row.places[first][0], row.places[end - 1][1]
            entities.append({"label": kind, "text": row.text[begin:stop], "begin": begin, "end": stop})
        predictions.append(
            {
                "text": row.text,
                "tokens": row.words,
                "tags": [examples.labels[tag] for tag in tags],
                "probabilities": probability.tolist(),
                "places": [list(place) for place in row.places],
                "entities": entities,
            }
        )
    return predictions


TAGGING = FineTuning(
    config=XLNetTaggingConfig,
    model=lazy("models.xlnet.with_tags:XLNetWithTags"),
    objective=lazy("objectives.tagging:Tagging"),
    training_data=training_examples,
    batch_spec=_batch_spec,
    head="xlnet_with_tags/head/",
    read=lazy("data.tasks.tagged.files:read_tagged"),
    rows=lazy("data.tasks.tagged.files:tagged_rows"),
    examples=_examples,
    fit=_fit,
    lengths=cut_lengths,
    measure=_measure,
    criterion="f1",
    collapse=_collapse,
    predictions=_predictions,
    panels=panels.tagging,
    guide=predicting(
        "gives a tag to every word of a text, such as a name's kind or a part of speech",
        "TEXTS.conll",
        '["A text.", ("Its", "words", ".")]',
        "It finds only things that had tags in its training texts, and in similar texts.",
    ),
)
"""Metrics are those of seqeval: precision, recall and F1 of entities; and the accuracy of tags."""
