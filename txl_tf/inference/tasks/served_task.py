"""A fine-tuned XLNet as a SavedModel that plain TensorFlow loads and serves, without this package.

Its signature takes strings and returns the results of `Predictor`, by task: classify, label, regress, choose, answer,
tag. It is also named `serving_default`. `answer_part` and `answer_whole` compute `answer` in several calls. The
vocabulary is inside. Texts are laid out and cut as in training. The model is traced for a few lengths; a batch uses the
smallest one that its longest example fits.

Shapes: B inputs, C classes, n options.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from txl_tf import families
from txl_tf.data.tables.columns import table_columns
from txl_tf.data.tasks.layout import MAX_QA, cut_article, encode, join, lay_out, pad_left
from txl_tf.data.tasks.tagged import schemes
from txl_tf.data.tasks.tagged.examples import MARKS
from txl_tf.devices.distribute import has_xla
from txl_tf.inference.saved_model import Served, by_length, filled, in_groups, signatures_of, traced_to_be_saved
from txl_tf.inference.tasks import answer_graph, tag_graph
from txl_tf.metrics.entities import Tags
from txl_tf.metrics.results import label_threshold
from txl_tf.models.answer_heads import BestAnswers
from txl_tf.runs.model_dir import TrainedModel

TEXTS, ROWS = tf.TensorSpec([None], tf.string), tf.TensorSpec([None, None], tf.string)

AT_ONCE = 16
"""Windows that are computed at once."""


class ServedTask(Served):
    """The graph functions that are exported.

    `lengths` are those of rows in tokens, ascending; the last is the length of the longest texts that the model reads.
    None: those of the model's evaluation. With `jit_compile` the model is compiled where it runs.
    """

    def __init__(self, trained: TrainedModel, jit_compile: bool = True, lengths: Sequence[int] | None = None):
        config: Any = trained.config
        task, self.config, self.readme = families.fine_tuning_of(config), config, config.task
        self.step = trained.step
        self.model, self.vocabulary, self.labels = trained.model, trained.vocabulary, trained.class_names()
        self.threshold = label_threshold(trained.dev_metrics() or {})
        self.lengths = tuple(lengths or config.lengths())
        self.t_len = config.data.tgt_len
        self.objective: Any = task.objective(trained.model, config)
        self.scheme = table_columns(trained.model_dir, None, labelled=False).scheme
        self._compile = jit_compile and has_xla()
        self._functions = functools.cache(self._function)
        # A function of its own, so that it is traced and stored once for all signatures.
        self._encode = tf.function(
            lambda texts: self.vocabulary.encode_with_places_tensor(texts), input_signature=[TEXTS], autograph=False
        )

    def facts(self) -> dict[str, Any]:
        """See `Served`."""
        data = self.config.data
        lengths = {**vars(data), "t_len": self.t_len, "max_qa": MAX_QA}
        pairs = self.config.task != "tagging"
        long = " " + filled("long_texts", **lengths).rstrip() if pairs and getattr(data, "max_segments", 1) > 1 else ""
        labels = json.dumps(self.labels[:10], ensure_ascii=False)
        signs = "" if self.scheme == schemes.OLDER else ", and so is each Han or Kana sign"
        own = {"signs": signs, "threshold": f"{self.threshold:.4g}", "step": f"{self.step:,}", "sizes": self.sizes()}
        return lengths | own | {"labels": labels, "long": long}

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """See `Served`; the first one is also named `serving_default`."""
        pairs, asked = {"texts": TEXTS, "second": TEXTS}, {"questions": TEXTS, "contexts": TEXTS}
        inputs: dict[Callable[..., Any], dict[str, tf.TensorSpec]]
        if self.config.task == "answering":
            number = tf.TensorSpec([], tf.int32)
            with traced_to_be_saved():
                outputs = self._functions(self.lengths[0]).get_concrete_function().structured_outputs
            kept = {f"kept_{name}": tf.TensorSpec(spec.shape, spec.dtype) for name, spec in outputs.items()}
            inputs = {
                self.answer: asked,
                self.answer_part: asked | {"begin": number, "end": number},
                self.answer_whole: asked | kept,
            }
        elif self.config.task == "multiple_choice":
            inputs = {self.choose: {"articles": TEXTS, "questions": TEXTS, "options": ROWS}}
        elif self.config.task == "tagging":
            inputs = {self.tag: {"texts": TEXTS}}
        else:
            tables = {"classification": self.classify, "multi_label": self.label, "regression": self.regress}
            inputs = {tables[self.config.task]: pairs}
        signatures = signatures_of(inputs)
        return signatures | {"serving_default": next(iter(signatures.values()))}

    def classify(self, texts: tf.Tensor, second: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `classify`: the most likely class of each text or pair; see README."""
        probabilities = tf.exp(self._of_texts(texts, second)["log_probs"])
        classes = tf.constant(self.labels)
        return {
            "labels": tf.gather(classes, tf.argmax(probabilities, axis=1)),
            "probability": tf.reduce_max(probabilities, axis=1),
            "probabilities": probabilities,
            # A row for each text: TensorFlow Serving cuts every output by its first axis.
            "classes": tf.broadcast_to(classes, tf.shape(probabilities)),
        }

    def label(self, texts: tf.Tensor, second: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `label`: the labels that fit each text or pair; see README."""
        probabilities = self._of_texts(texts, second)["probabilities"]
        return {
            "probabilities": probabilities,
            "given": probabilities >= self.threshold,
            "classes": tf.broadcast_to(tf.constant(self.labels), tf.shape(probabilities)),
        }

    def regress(self, texts: tf.Tensor, second: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `regress`: the score of each text or pair; see README."""
        return {"scores": self._of_texts(texts, second)["score"]}

    def choose(self, articles: tf.Tensor, questions: tf.Tensor, options: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `choose`: the most likely option of each question; see README."""
        rows, count = tf.shape(options, tf.int64)[0], tf.shape(options, tf.int64)[1]
        for given in (articles, questions):
            options = _checked(options, tf.size(given, tf.int64), rows, "give an article and options for each question")
        texts = encode(self.vocabulary, with_options(tf.repeat(questions, count), tf.reshape(options, [-1])))
        first = encode(self.vocabulary, tf.repeat(articles, count))
        found = self._outputs(*join(self.vocabulary, *cut_article(first, texts, self.t_len)), tf.cast(count, tf.int32))
        probabilities = tf.exp(found["log_probs"])
        best = tf.argmax(probabilities, axis=1, output_type=tf.int32)
        return {
            "choice": best,
            "option": tf.gather(options, best, batch_dims=1),
            "probability": tf.reduce_max(probabilities, axis=1),
            "probabilities": probabilities,
        }

    def answer(self, questions: tf.Tensor, contexts: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `answer`: the likeliest answer to each question; see README."""
        windows = self._windows(questions, contexts)
        return self._best_answers(windows, self._read(windows), contexts)

    def answer_part(
        self, questions: tf.Tensor, contexts: tf.Tensor, begin: tf.Tensor, end: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The signature `answer_part`: the model's results for some windows; see README."""
        windows = self._windows(questions, contexts)
        counts = tf.math.unsorted_segment_sum(tf.ones_like(windows.row, tf.int32), windows.row, tf.size(questions))
        found = self._read(windows, begin, end)
        return {"windows": counts} | {f"kept_{name}": values for name, values in found.items()}

    def answer_whole(self, questions: tf.Tensor, contexts: tf.Tensor, **kept: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `answer_whole`: the likeliest answers, from the results for all windows; see README."""
        found = {name.removeprefix("kept_"): values for name, values in kept.items()}
        return self._best_answers(self._windows(questions, contexts), found, contexts)

    def tag(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `tag`: the tags of each text's words, and the entities that they name; see README."""
        (ids, begin, end), words = self._encode(texts), tag_graph.word_places(texts, self.scheme == schemes.OLDER)
        parts, segments = tag_graph.parts_of(ids, self.vocabulary, self.lengths[-1] - MARKS)

        def read(t_len: int) -> dict[str, tf.Tensor]:
            found = in_groups(self._functions(t_len), pad_left(parts, segments, t_len), AT_ONCE)
            return {name: tag_graph.of_pieces(parts, values) for name, values in found.items()}

        found = by_length(tf.reduce_max(parts.row_lengths()), self.lengths, read)
        default = self.labels.index("O") if "O" in self.labels else 0
        tag, probability = tag_graph.word_tags(begin, end, words, found["tag"], found["log_prob"], default)
        kind, first, last = tag_graph.entities(Tags(self.labels, self.scheme), words, tag)
        names = tf.gather(tf.constant(self.labels), tag)
        return {
            "tags": words.begin.with_flat_values(names).to_tensor(""),
            "probability": words.begin.with_flat_values(probability).to_tensor(0.0),
            "begin": words.begin.to_tensor(-1),
            "end": words.end.to_tensor(-1),
            "entity_labels": kind.to_tensor(""),
            "entity_begin": first.to_tensor(-1),
            "entity_end": last.to_tensor(-1),
        }

    def _windows(self, questions: tf.Tensor, contexts: tf.Tensor) -> answer_graph.Windows:
        questions = _checked(questions, tf.size(questions), tf.size(contexts), "give a context for each question")
        return answer_graph.windows(self._encode, questions, contexts, self.config.data)

    def _read(
        self, windows: answer_graph.Windows, begin: tf.Tensor | None = None, end: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """The tensors of BestAnswers for the windows from `begin` to before `end`; None: for all."""

        def read(t_len: int) -> dict[str, tf.Tensor]:
            rows = answer_graph.features(windows, self.vocabulary, t_len)
            rows = {name: values[begin:end] for name, values in rows.items()}
            return in_groups(self._functions(t_len), rows, AT_ONCE)

        return by_length(tf.reduce_max(windows.lengths()), self.lengths, read)

    def _best_answers(
        self, windows: answer_graph.Windows, found: dict[str, tf.Tensor], contexts: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        return answer_graph.best_answers(windows, BestAnswers(**found), contexts, self.config.eval.max_answer_len)

    def _of_texts(self, texts: tf.Tensor, second: tf.Tensor) -> dict[str, tf.Tensor]:
        texts = _checked(texts, tf.size(texts), tf.size(second), 'give a second text, or "", for each text')
        segments = self.config.data.max_segments
        return self._outputs(*lay_out(self.vocabulary, texts, second, self.t_len, segments))

    def _outputs(
        self, ids: tf.RaggedTensor, segments: tf.RaggedTensor, count: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """The objective's predictions for rows, or for rows that are `count` sequences of each example."""

        def padded(t_len: int) -> tf.Tensor:
            return self._functions(t_len)(pad_left(ids, segments, t_len))

        logits = by_length(tf.reduce_max(ids.row_lengths()), self.lengths, padded)
        if count is not None:
            logits = tf.reshape(logits, [-1, count, 1])
        return {name: tf.cast(found, tf.float32) for name, found in self.objective.predictions(logits).items()}

    def _function(self, t_len: int) -> Any:
        """The model on rows of one length, dicts of features: logits, or for windows the objective's predictions."""
        run = {"answering": self.objective.outputs, "tagging": self._best_tags}.get(
            self.config.task, self.objective.logits
        )
        numbers, marks = (tf.TensorSpec([None, t_len], dtype) for dtype in (tf.int32, tf.bool))
        signature = {"tokens": numbers, "segments": numbers, "padding": marks}
        if self.config.task == "answering":
            signature |= {"allowed": marks, "cls_index": tf.TensorSpec([None], tf.int32)}
        return tf.function(run, input_signature=[signature], jit_compile=self._compile, autograph=False)

    def _best_tags(self, rows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        found: dict[str, tf.Tensor] = self.objective.predictions(self.objective.logits(rows))
        return found


def _checked(given: tf.Tensor, size: tf.Tensor, other: tf.Tensor, remedy: str) -> tf.Tensor:
    """`given`, with an error at run time unless two sizes are equal."""
    with tf.control_dependencies([tf.debugging.assert_equal(size, other, remedy)]):
        return tf.identity(given)


def with_options(questions: tf.Tensor, options: tf.Tensor) -> tf.Tensor:
    """Questions [n] with an option each, as `race.Question.with_options` has them."""
    parts = tf.strings.split(questions, "_")
    last = parts.row_lengths() - 1
    gaps = tf.ragged.range(parts.row_lengths()).flat_values < tf.gather(last, parts.value_rowids())
    pieces = tf.strings.join([parts.flat_values, tf.where(gaps, tf.gather(options, parts.value_rowids()), "")])
    filled = tf.strings.reduce_join(parts.with_flat_values(pieces), axis=-1)
    return tf.where(last > 0, filled, tf.strings.join([questions, options], " "))
