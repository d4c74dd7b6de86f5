"""Tagging: every word of a text has a tag, such as a name's kind or a part of speech.

texts.py reads files, spans.py those that annotation programs write, and words.py finds words. schemes.py says what tags
mean, examples.py makes examples, and decoding.py chooses tags. graph.py does this work in a SavedModel.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.table import Table
from txl_tf.metrics.labelling import confusion
from txl_tf.metrics.task_results import WORST, Confusion, Dev, Outputs, Panel, Reliability, TaskResults, Worst, Wrong
from txl_tf.models.xlnet.head_config import XLNetTagsConfig
from txl_tf.settings.groups import usual
from txl_tf.settings.run import Config
from txl_tf.tasks.base import SequenceTask, Served, Signatures, predicting
from txl_tf.tasks.settings import SEGMENTS, ExamplesConfig, ExamplesEvalConfig, XLNetHeadRunConfig
from txl_tf.tasks.tagging import schemes
from txl_tf.tasks.tagging.schemes import Entity, Tags, by_kind, entity_scores, mistakes
from txl_tf.tasks.tagging.texts import TaggedText, may_have_texts, read_tagged, untagged

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from txl_tf.data.examples.example_set import ExamplePlan
    from txl_tf.data.vocabularies import Vocabulary
    from txl_tf.tasks.tagging.examples import TaggedExamples


@dataclasses.dataclass(frozen=True)
class TaggedTextsConfig(ExamplesConfig):
    """The batches of texts whose words have tags."""

    max_segments: int = usual(8, SEGMENTS + "A longer text is read in several such parts", at_least=1)


LEGAL, WORDS = "legal", "words"
"""How tags are chosen: `TagsEvalConfig.decoding`."""


@dataclasses.dataclass(frozen=True)
class TagsEvalConfig(ExamplesEvalConfig):
    """How a tagger is evaluated and used; runs of older versions have no `decoding`, and take each word by itself."""

    decoding: str = usual(
        "",
        "how tags are chosen. legal: the likeliest sequence that their scheme allows; words: the likeliest tag of each "
        "word by itself; empty, in a new run: legal if the scheme forbids any sequence",
        choices=("", LEGAL, WORDS),
    )


@dataclasses.dataclass(frozen=True)
class XLNetTaggingConfig(XLNetHeadRunConfig):
    """Every word of a text has a tag, such as a name's kind or a part of speech."""

    task: ClassVar[str] = "tagging"

    model: XLNetTagsConfig = dataclasses.field(default_factory=XLNetTagsConfig)
    data: TaggedTextsConfig = dataclasses.field(default_factory=TaggedTextsConfig)
    eval: TagsEvalConfig = dataclasses.field(default_factory=TagsEvalConfig)

    def fit_to_pretrained(self, pretrained: Config, train: TaggedExamples) -> XLNetTaggingConfig:
        """As for other tasks; a new run decodes legal sequences if the scheme of the tags in `train` forbids others."""
        decoding = self.eval.decoding or (LEGAL if train.forbids() else WORDS)
        return super().fit_to_pretrained(pretrained, train).replace(eval={"decoding": decoding})

    def shared_settings(self, pretrained: Config) -> dict[str, Any]:
        """As for other tasks, with all tokens remembered; a model without memory gets a memory of one segment."""
        shared = super().shared_settings(pretrained)
        return shared | {"reuse_len": 0, "mem_init": "empty", "mem_len": shared["mem_len"] or self.data.tgt_len}


class TagResults(TaskResults):
    """The results of tagging: `tags` and `log_probs` of each text's words, [W]. Its metrics are those of seqeval."""

    examples: TaggedExamples

    def __init__(self, outputs: Outputs, examples: TaggedExamples):
        super().__init__(outputs, examples)
        self.tags, self.log_probs = examples.tags(outputs)

    def measure(self, dev: Dev) -> dict[str, float]:
        """f1, precision, recall and accuracy; if only legal sequences are given, f1_word_by_word, without that rule."""
        labels, rows, scheme = self.examples.labels, self.examples.numbers(), self.examples.scheme
        found = entity_scores(labels, rows, self.tags, scheme)
        if "log_probs" in self.outputs:
            alone = [row.argmax(axis=1) for row in self.examples.log_probs(self.outputs)]
            found["f1_word_by_word"] = entity_scores(labels, rows, alone, scheme)["f1"]
        return found

    def collapse(self, dev: Dev) -> str | None:
        """Reports that all words have the same tag, and should not."""
        found = {tag for row in self.tags for tag in row.tolist()}
        known = None if self.label is None else len(set(self.examples.known_labels().tolist()))
        words = len(self.examples.pieces)
        if words > 1 and len(found) == 1 and known != 1:
            return f"all {words:,} words are predicted to have the tag {self.examples.labels[found.pop()]}"
        return None

    def panels(self, vocabulary: Vocabulary) -> list[Panel]:
        """A confusion matrix of tags, a reliability diagram, F1 by kind of entity, and the surest wrong entities."""
        examples, names = self.examples, self.examples.labels
        label, known, wrong = examples.numbers(), Tags(names, examples.scheme), []
        for number, (text, right, found) in enumerate(zip(examples.texts, label, self.tags, strict=True)):
            for there, given in mistakes(known.entities(right), known.entities(found)):
                about: dict[str, Any] = {"label": _named(there, text), "prediction": _named(given, text)}
                about["probability"] = round(self._sure(number, next(filter(None, (given, there)))), 6)
                wrong.append(Wrong(number, about, text.text))
        wrong.sort(key=lambda one: -one.columns["probability"])
        tag, given_tag, sure = (np.concatenate(part) for part in (label, self.tags, self.log_probs))
        return [
            Confusion(names, confusion(tag, given_tag, len(names))),
            Reliability(np.exp(sure), tag == given_tag),
            by_kind(names, label, self.tags, examples.scheme),
            Worst(tuple(wrong[:WORST])),
        ]

    def _sure(self, number: int, entity: Entity) -> float:
        """The probability of an entity in the text of this number: that of the tag of its least sure word."""
        return float(np.exp(self.log_probs[number][entity.first : entity.end].min()))

    def predictions(self, rows: Any, dev: Dev) -> list[dict[str, Any]]:
        """text, tokens, with tags, probabilities and places of each, and entities."""
        known, predictions = Tags(self.examples.labels, self.examples.scheme), []
        for number, (row, tags, log_probs) in enumerate(zip(rows, self.tags, self.log_probs, strict=True)):
            entities = []
            for entity in known.entities(tags):
                begin, stop = row.places[entity.first][0], row.places[entity.end - 1][1]
                place = {"begin": begin, "end": stop, "probability": self._sure(number, entity)}
                entities.append({"label": entity.kind, "text": row.text[begin:stop]} | place)
            own = {"tags": [self.examples.labels[tag] for tag in tags], "probabilities": np.exp(log_probs).tolist()}
            own |= {"places": [list(place) for place in row.places], "entities": entities}
            predictions.append({"text": row.text, "tokens": row.words} | own)
        return predictions


def _named(entity: Entity | None, text: TaggedText) -> str:
    """An entity as its kind and words; "" if there is none."""
    return "" if entity is None else " ".join([entity.kind, *text.words[entity.first : entity.end]])


CONLL = ".conll"
"""The end of names of files of tagged words."""


def conll(prediction: dict[str, Any]) -> str:
    """Tagged words in CoNLL's format."""
    rows = zip(prediction["tokens"], prediction["tags"], strict=True)
    return "".join(re.sub(r"[\t-\r\x85\u2028\u2029]", " ", word) + f"\t{tag}\n" for word, tag in rows) + "\n"


class Tagging(SequenceTask):
    """Softmax over the tags at every word's first piece; all words count alike.

    label: int [b, L], -1 at other pieces. Longer texts than tgt_len are read in segments of it.
    """

    config = XLNetTaggingConfig
    head = "xlnet_with_tags/head/"
    criterion = "f1"
    results = TagResults
    one_class = True
    adds: ClassVar[Mapping[str, tuple[str, Any]]] = {
        "entities": ("entities", [{"label": str, "text": str, "begin": int, "end": int, "probability": float}])
    }
    signature = "tag"
    written: ClassVar[Mapping[str, Callable[[dict[str, Any]], str]]] = {CONLL: conll}
    guide = predicting(
        "gives a tag to every word of a text, such as a name's kind or a part of speech",
        "TEXTS.conll",
        '["A text.", ("Its", "words", ".")]',
        "It finds only things that had tags in its training texts, and in similar texts.",
    )

    def model(self, settings: Any) -> keras.Model:
        from txl_tf.models.xlnet.with_head import XLNetWithTags

        return XLNetWithTags(settings)

    def baselines(self, corpus: Any) -> dict[str, float]:
        """The F1 of giving each word its most frequent tag in train, and a new word the most frequent of all."""
        learned = [(word, tag) for one in corpus.train.texts for word, tag in zip(one.words, one.tags, strict=True)]
        usual = collections.Counter(tag for _, tag in learned).most_common(1)[0][0]
        likeliest = dict(pair for pair, _ in reversed(collections.Counter(learned).most_common()))
        number = {name: i for i, name in enumerate(corpus.labels)}
        rows = [[number[likeliest.get(word, usual)] for word in one.words] for one in corpus.dev.texts]
        return {"most_frequent_tag": entity_scores(corpus.labels, corpus.dev.numbers(), rows, corpus.dev.scheme)["f1"]}

    def worth(self, result: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """A sentence that compares the F1 with those of its baseline and of the other decoding."""
        others = {"most_frequent_tag": "the most frequent tag of each word alone"}
        others["f1_word_by_word"] = f"each word by itself (--eval_decoding={WORDS})"
        beside = [f"{words} {result[name]:.1%}" for name, words in others.items() if name in result]
        return {}, ", ".join([f"F1 {result['f1']:.1%}", *beside])

    def read(self, path: str | Table, columns: Columns, labelled: bool = True, tags: Any = ()) -> list[TaggedText]:
        return read_tagged(path, columns, labelled, tags)

    def rows(self, values: Sequence[Any], columns: Columns) -> list[TaggedText]:
        return [untagged(one, f"text {i}", columns.scheme == schemes.OLDER) for i, one in enumerate(values, 1)]

    def needs(self, columns: Columns, names: Sequence[str]) -> tuple[str, ...]:
        return () if may_have_texts(columns, names) else (columns.text_column,)

    def examples(self, rows: Sequence[TaggedText], plan: ExamplePlan) -> TaggedExamples:
        from txl_tf.tasks.tagging.examples import tagged_examples

        return tagged_examples(rows, plan)

    def cells(self, row: TaggedText, prediction: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """The kinds and words of all names, and the probability of the least sure one; in a word's row its own tag."""
        if row.lines:
            words = zip(row.lines, prediction["tags"], prediction["probabilities"], strict=True)
            return {line: {"tag": tag, "probability": probability} for line, tag, probability in words}
        names = prediction["entities"]
        found = {"names": [f"{name['label']} {name['text']}" for name in names]}
        return super().cells(row, found | {"probability": min((name["probability"] for name in names), default=None)})

    def source(self, rows: Sequence[TaggedText], number: int, columns: Columns) -> dict[str, Any]:
        return {"row": rows[number].where}

    def losses(self, logits: tf.Tensor, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """The sum of -log p(tag) over the words of each example, [b], in nats; logits [b, L, C]."""
        import tensorflow as tf

        label = batch["label"]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(label, 0), logits)
        return tf.reduce_sum(losses * tf.cast(label >= 0, logits.dtype), axis=1)

    def targets(self, batch: dict[str, tf.Tensor], weight: tf.Tensor) -> tf.Tensor:
        """The words of each example, [b], times its weight."""
        import tensorflow as tf

        return weight * tf.reduce_sum(tf.cast(batch["label"] >= 0, weight.dtype), axis=1)

    def predictions(self, logits: tf.Tensor, config: Any) -> dict[str, tf.Tensor]:
        """tag, int32 [b, L], the likeliest, and log_prob [b, L], its log-probability in nats.

        If tags are chosen when all words of a text are read, instead log_probs [b, L, C], of all tags.
        """
        import tensorflow as tf

        log_probs = tf.nn.log_softmax(logits)
        if config.eval.decoding == LEGAL:
            return {"log_probs": log_probs}
        tag = tf.argmax(log_probs, axis=-1, output_type=tf.int32)
        return {"tag": tag, "log_prob": tf.reduce_max(log_probs, axis=-1)}

    def served(self, model: Any, rows: dict[str, tf.Tensor], config: Any) -> dict[str, tf.Tensor]:
        return self.outputs(model, rows, config)

    def facts(self, served: Served) -> dict[str, Any]:
        rule = (
            " Tags are the likeliest sequence that their scheme allows." if served.config.eval.decoding == LEGAL else ""
        )
        return {"signs": "" if served.scheme == schemes.OLDER else ", and so is each Han or Kana sign", "rule": rule}

    def signature_result(self, outputs: dict[str, Any], item: TaggedText) -> dict[str, Any]:
        rows, entities = zip(outputs["entity_labels"], outputs["entity_begin"], outputs["entity_end"], strict=True), []
        words = list(zip(outputs["begin"], outputs["probability"], strict=True))
        for label, begin, end in (row for row in rows if row[1] >= 0):
            sure = min(probability for first, probability in words if begin <= first < end)
            place = {"begin": begin, "end": end, "probability": float(sure)}
            entities.append({"label": label, "text": item.text[begin:end]} | place)
        return {"entities": entities}

    def signatures(self, served: Served) -> Signatures:
        """`tag`: the tags of each text's words, and the entities that they name; see README."""
        from txl_tf.tasks.tagging.graph import signatures

        return signatures(served)
