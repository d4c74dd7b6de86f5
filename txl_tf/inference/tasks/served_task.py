"""A fine-tuned XLNet as a SavedModel that plain TensorFlow loads and serves, without this package.

Its signature takes strings and gives what `Predictor` gives, by task: classify, regress, choose, answer; it is also
named `serving_default`. `answer_part` and `answer_whole` give what `answer` gives, in several calls. The vocabulary is
inside. Texts are laid out and cut as in training. The model is traced for a few lengths; a batch uses the smallest of
them that is not below its longest example.

Shapes: B inputs, C classes, n options.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from txl_tf import families
from txl_tf.data.tasks.layout import encode, join, lay_out, pad_left
from txl_tf.data.tasks.race_examples import MAX_QA, cut_article
from txl_tf.data.tasks.windows import Layout
from txl_tf.devices.distribute import has_xla
from txl_tf.inference.saved_model import by_length, in_groups, signatures_of, traced_to_be_saved, write_saved_model
from txl_tf.inference.tasks import answer_graph
from txl_tf.models.heads import BestAnswers
from txl_tf.runs.model_dir import TrainedModel
from txl_tf.storage.files import require_new_directory

TEXTS, ROWS = tf.TensorSpec([None], tf.string), tf.TensorSpec([None, None], tf.string)

AT_ONCE = 16
"""So many windows are computed at once."""

README = """\
# An XLNet for {task}, exported by txl_tf

    import tensorflow as tf
    import tensorflow_text  # only if loading says that an op is missing: subword vocabularies need it

    model = tf.saved_model.load("{{name}}").signatures
    model[{call}

{about}
Its weights are those after step {step:,}. Sizes: {sizes}. {cut} A signature needs all its inputs: a SavedModel has no
defaults.

`serving_default`, which TensorFlow Serving calls if a request names no signature, is {default}. The first axis of its
inputs and outputs is that of the batch.
"""


class ServedTask(tf.Module):
    """The graph function that is exported.

    Args:
        trained: a TrainedModel of a task for which models are fine-tuned.
        jit_compile: whether the model is compiled by XLA where it runs.
        lengths: row lengths in tokens, ascending, the last of them that of the longest texts that the model reads;
            None: those of the model's evaluation.
    """

    def __init__(self, trained: TrainedModel, jit_compile: bool = True, lengths: Sequence[int] | None = None):
        super().__init__(name="served_task")
        config: Any = trained.config
        task, self.config = families.fine_tuning_of(config), config
        self.vocabulary, self.labels = trained.vocabulary, trained.class_names()
        self.lengths = tuple(lengths or task.lengths(config))
        self.t_len = config.data.tgt_len
        self.objective: Any = task.objective(trained.model, config)
        self._compile = jit_compile and has_xla()
        self._functions = functools.cache(self._function)
        # A function of its own, so that it is traced and stored once for all signatures.
        self._encode = tf.function(
            lambda texts: self.vocabulary.encode_with_places_tensor(texts), input_signature=[TEXTS], autograph=False
        )

    def signatures(self, task: str) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """The functions for a task by name, as `tf.saved_model.save` takes them."""
        pairs, asked = {"texts": TEXTS, "second": TEXTS}, {"questions": TEXTS, "contexts": TEXTS}
        if task == "answering":
            number = tf.TensorSpec([], tf.int32)
            with traced_to_be_saved():
                outputs = self._functions(self.lengths[0]).get_concrete_function().structured_outputs
            kept = {f"kept_{name}": tf.TensorSpec(spec.shape, spec.dtype) for name, spec in outputs.items()}
            return signatures_of(
                {
                    self.answer: asked,
                    self.answer_part: asked | {"begin": number, "end": number},
                    self.answer_whole: asked | kept,
                }
            )
        inputs: dict[str, tuple[Callable[..., Any], dict[str, tf.TensorSpec]]] = {
            "classification": (self.classify, pairs),
            "regression": (self.regress, pairs),
            "multiple_choice": (self.choose, {"articles": TEXTS, "questions": TEXTS, "options": ROWS}),
        }
        return signatures_of(dict([inputs[task]]))

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

    def regress(self, texts: tf.Tensor, second: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `regress`: the score of each text or pair; see README."""
        return {"scores": self._of_texts(texts, second)["score"]}

    def choose(self, articles: tf.Tensor, questions: tf.Tensor, options: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `choose`: the most likely option of each question; see README."""
        rows, count = tf.shape(options, tf.int64)[0], tf.shape(options, tf.int64)[1]
        same = [
            tf.debugging.assert_equal(tf.size(given, tf.int64), rows, "give an article and options for each question")
            for given in (articles, questions)
        ]
        with tf.control_dependencies(same):
            flat = tf.reshape(options, [-1])
        texts = encode(self.vocabulary, with_options(tf.repeat(questions, count), flat))
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
        return self._best_answers(windows, BestAnswers(**self._read(windows)), contexts)

    def answer_part(
        self, questions: tf.Tensor, contexts: tf.Tensor, begin: tf.Tensor, end: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The signature `answer_part`: what the model says of some windows; see README."""
        windows = self._windows(questions, contexts)
        counts = tf.math.unsorted_segment_sum(tf.ones_like(windows.row, tf.int32), windows.row, tf.size(questions))
        found = self._read(windows, begin, end)
        return {"windows": counts} | {f"kept_{name}": values for name, values in found.items()}

    def answer_whole(self, questions: tf.Tensor, contexts: tf.Tensor, **kept: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `answer_whole`: the likeliest answers, of what is known of all windows; see README."""
        found = BestAnswers(**{name.removeprefix("kept_"): values for name, values in kept.items()})
        return self._best_answers(self._windows(questions, contexts), found, contexts)

    def _windows(self, questions: tf.Tensor, contexts: tf.Tensor) -> answer_graph.Windows:
        same = tf.debugging.assert_equal(tf.size(questions), tf.size(contexts), "give a context for each question")
        with tf.control_dependencies([same]):
            questions = tf.identity(questions)
        data = self.config.data
        layout = Layout(data.tgt_len, data.max_query_len, data.doc_stride)
        return answer_graph.windows(self._encode, questions, contexts, layout)

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
        self, windows: answer_graph.Windows, found: BestAnswers, contexts: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The outputs of `answer`."""
        best = answer_graph.best_answers(windows, found, contexts, self.config.eval.max_answer_len)
        return {
            "answers": best.text,
            "begin": best.begin,
            "end": best.end,
            "probability": tf.cast(tf.exp(best.log_prob), tf.float32),
            "no_answer_probability": tf.cast(tf.sigmoid(best.null_score), tf.float32),
        }

    def _of_texts(self, texts: tf.Tensor, second: tf.Tensor) -> dict[str, tf.Tensor]:
        same = tf.debugging.assert_equal(tf.size(texts), tf.size(second), 'give a second text, or "", for each text')
        with tf.control_dependencies([same]):
            texts = tf.identity(texts)
        segments = self.config.data.max_segments
        return self._outputs(*lay_out(self.vocabulary, texts, second, self.t_len, segments))

    def _outputs(
        self, ids: tf.RaggedTensor, segments: tf.RaggedTensor, count: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """The objective's predictions for rows, or for rows that are `count` sequences of each example."""

        def padded(t_len: int) -> tf.Tensor:
            return self._functions(t_len)(pad_left(ids, segments, t_len)._asdict())

        logits = by_length(tf.reduce_max(ids.row_lengths()), self.lengths, padded)
        if count is not None:
            logits = tf.reshape(logits, [-1, count, 1])
        return {name: tf.cast(found, tf.float32) for name, found in self.objective.predictions(logits).items()}

    def _function(self, t_len: int) -> Any:
        """The model on rows of a length, dicts of features: logits, or what the objective makes of windows."""
        rows = {"tokens": tf.int32, "segments": tf.int32, "padding": tf.bool}
        if self.config.task == "answering":
            run, rows = self.objective.outputs, rows | {"allowed": tf.bool}
        else:
            run = self._logits
        signature = {name: tf.TensorSpec([None, t_len], dtype) for name, dtype in rows.items()}
        if "allowed" in rows:
            signature["cls_index"] = tf.TensorSpec([None], tf.int32)
        return tf.function(run, input_signature=[signature], jit_compile=self._compile, autograph=False)

    def _logits(self, rows: dict[str, tf.Tensor]) -> tf.Tensor:
        objective = self.objective
        given = {name: rows[name] for name in ("segments", "padding")}
        return objective.model(rows["tokens"], **given, segment_len=objective.segment_len)


def with_options(questions: tf.Tensor, options: tf.Tensor) -> tf.Tensor:
    """Questions [n] with an option each, as `race.Question.with_options` has them."""
    parts = tf.strings.split(questions, "_")
    last = parts.row_lengths() - 1
    gaps = tf.ragged.range(parts.row_lengths()).flat_values < tf.gather(last, parts.value_rowids())
    pieces = tf.strings.join([parts.flat_values, tf.where(gaps, tf.gather(options, parts.value_rowids()), "")])
    filled = tf.strings.reduce_join(parts.with_flat_values(pieces), axis=-1)
    return tf.where(last > 0, filled, tf.strings.join([questions, options], " "))


_PAIRS = 'texts: strings [B]. second: strings [B], the second text of each pair, "" where there is none'
_CALL = '(texts=tf.constant(["A text.", "A question?"]), second=tf.constant(["", "A passage."]))'
_CUT = (
    "An example has {t_len} tokens, with <sep> and <cls>. As in training, a pair that does not fit loses tokens from "
    "the end of its longer text until it does; of a single text the first tokens are read."
)
_LONG = (
    " As in training, a longer text is read in up to {max_segments} segments of so many tokens, each with the memory "
    "of those before it; and what is said of {t_len} tokens is true of all segments together, but the second text of a "
    "pair must fit into the last."
)
_ABOUT = {
    "classification": (
        f'"classify"]{_CALL}["labels"]',
        f"classify: {_PAIRS} -> labels: strings [B], the most likely class of each. probability: float [B], of "
        "this class. probabilities: float [B, C], of all classes. classes: strings [B, C], their names, the same "
        "for each text: {labels}.\n",
        _CUT,
    ),
    "regression": (f'"regress"]{_CALL}["scores"]', f"regress: {_PAIRS} -> scores: float [B].\n", _CUT),
    "multiple_choice": (
        '"choose"](\n        articles=tf.constant(["A text."]), questions=tf.constant(["It is _ ."]),\n'
        '        options=tf.constant([["one", "two"]]))["choice"]',
        "choose: articles: strings [B]. questions: strings [B]; an option stands in the place of each _, or after the "
        "question. options: strings [B, n] -> choice: int32 [B], the number of the most likely option, from 0 on. "
        "option: strings [B], its text. probability: float [B]. probabilities: float [B, n], those of all options.\n",
        f"An example has {{t_len}} tokens, with <sep> and <cls>. As in training, of a question with an option the last "
        f"{MAX_QA} tokens are read, and of the article as many of the first as fit.",
    ),
    "answering": (
        '"answer"](\n        questions=tf.constant(["Where?"]), contexts=tf.constant(["A text."]))["answers"]',
        "answer: questions: strings [B]. contexts: strings [B] -> answers: strings [B], the most likely answer in each "
        'context, whether there is one or not; "" if none is possible. begin: int32 [B]. end: int32 [B]: its place in '
        "the context, in characters; -1 if there is none. probability: float [B], of its start times that of its end, "
        "in one window. no_answer_probability: float [B], that the context has no answer.\n\n"
        "answer_part and answer_whole give the same in calls of bounded length. answer_part: questions, contexts, and "
        "begin: int32, end: int32, which of the windows of all contexts this call reads, from 0 on -> windows: int32 "
        "[B], how many each context has. kept_start: kept_start_log_prob: kept_end: kept_end_log_prob: "
        "kept_impossible: what it found, a row for each window. answer_whole: questions, contexts, and these five with "
        "the rows of all windows -> as answer.\n",
        "A window of a context and its question has at most {t_len} tokens, with <sep> and <cls>. As in training, "
        "longer contexts are read in overlapping windows, and a question is cut to {max_query_len} tokens.",
    ),
}
"""For the README, by task: the call, what the signature takes and gives, and what becomes of long texts."""


def export(
    trained: TrainedModel, export_dir: str, *, jit_compile: bool = True, lengths: Sequence[int] | None = None
) -> None:
    """Writes the SavedModel, and a README.md that describes its signature.

    Args:
        trained: a TrainedModel of a task for which models are fine-tuned.
        export_dir: directory to write to, local or gs://. It must be empty or not exist.
        jit_compile, lengths: as for ServedTask.

    Raises:
        InputError: export_dir is not empty.
    """
    require_new_directory(export_dir, "export_dir")
    served, task = ServedTask(trained, jit_compile, lengths), trained.config.task
    call, about, cut = _ABOUT[task]
    default = about.partition(":")[0]
    config, data = trained.model.config, served.config.data
    sizes = {"vocabulary": config.vocab_size, "unit": trained.unit, "layers": config.n_layer, "width": config.d_model}
    readme = README.format(
        task=task.replace("_", " "),
        step=trained.step,
        call=call,
        about=about.replace("{labels}", json.dumps(served.labels[:10], ensure_ascii=False)),
        sizes=json.dumps(sizes),
        default=default,
        cut=(cut + (_LONG if getattr(data, "max_segments", 1) > 1 else "")).format(**vars(data), t_len=served.t_len),
    )
    signatures = served.signatures(task)
    signatures["serving_default"] = signatures[default]
    write_saved_model(export_dir, signatures, trained.model, trained.vocabulary, readme)
