"""The Python API: a trained model as one object, with a method for each thing that it can do.

Examples:
    >>> import txl_tf
    >>> model = txl_tf.load("runs/enwik8")
    >>> model.generate("The history of ", max_tokens=200, temperature=0.8)

`Task.abilities` in a family's registration lists the methods of its models; other methods raise InputError.
"""

from __future__ import annotations

import collections
import functools
import sys
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import keras

from txl_tf import families
from txl_tf.data.manifest import load_corpus
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.frames import is_frame, refuse_paths, table_of, with_predictions
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.devices.distribute import make_strategy
from txl_tf.errors import InputError
from txl_tf.inference.abilities import tool_for, unable
from txl_tf.inference.causal.language_model import Score
from txl_tf.inference.evaluate import Evaluator
from txl_tf.inference.repeats import repeats
from txl_tf.inference.tasks.predictor import Predicted, Predictor
from txl_tf.inference.xlnet.encoder import Encoded, Text
from txl_tf.inference.xlnet.fill_in import Filling, PseudoScore
from txl_tf.progress import progress_bar, reported
from txl_tf.published.directly import usable
from txl_tf.quiet import quiet
from txl_tf.runs.model_dir import TrainedModel, load_trained
from txl_tf.settings.choices import CHECKPOINTS, DTYPES, QUANTIZE, WEIGHTS
from txl_tf.settings.run import Config

BATCH = 16
"""Texts that are computed together. No result depends on it."""

Texts = list[str] | tuple[str, ...]
Prediction = dict[str, Any]


def load(
    model_dir: str,
    checkpoint: str | None = None,
    weights: str | None = None,
    *,
    jit_compile: bool | None = None,
    dtype: str | None = None,
    quantize: str | None = None,
    progress: bool = True,
    **settings: Any,
) -> Model:
    """The trained model of a directory, on the first GPU or the CPU.

    Args:
        model_dir: a directory that training, fine-tuning or an import wrote; local or gs://. Or a published model,
            which is fetched and imported on first use. It is a name in Hugging Face's Hub, such as
            xlnet/xlnet-base-cased or OWNER/NAME@REVISION, a local folder from there, or the official zip.
        checkpoint: "latest", or "best" by the evaluations during training. None: the latest, but for a fine-tuned model
            that was evaluated the best.
        weights: "last", or "average" over steps; None: the average if there is one.
        jit_compile: whether XLA compiles the model, which takes time for each new length of text. None: it compiles
            generation, and evaluation if the model's config.json says so.
        dtype: "float32", or "mixed_bfloat16", which needs less memory and is faster where the processor or GPU computes
            with bfloat16; "mixed_float16" for GPUs without bfloat16; None: as in training.
        quantize: "int8" rounds the weights of a Transformer-XL's layers and softmax to int8, with a scale for each
            output channel. A CPU then generates up to four texts faster. None: they are not rounded.
        progress: whether longer work shows a progress bar on standard error.
        settings: of evaluation, in place of those in the model's config.json; for a Transformer-XL mem_len, clamp_len,
            same_length, batch_size and tgt_len. Generation and scores also use them.

    Raises:
        InputError: there is no trained model, it cannot be fetched or read, or a setting is unknown or out of range.
    """
    for name, value, allowed in (
        ("checkpoint", checkpoint, (None, *CHECKPOINTS)),
        ("weights", weights, (None, *WEIGHTS)),
        ("dtype", dtype, (None, *DTYPES)),
        ("quantize", quantize, (None, *QUANTIZE)),
    ):
        if value not in allowed:
            raise InputError(f"{name}={value!r} must be one of {', '.join(map(repr, allowed))}")
    given = settings if jit_compile is None else settings | {"jit_compile": jit_compile}
    with quiet(), make_strategy("one_device").scope():
        trained = load_trained(
            usable(model_dir), weights, checkpoint, lambda config: config.replace(eval=given), dtype, quantize
        )
    return Model(trained, jit_compile, progress)


class Model:
    """A trained model. `load` makes one.

    Which methods it has depends on what it was trained for; `abilities` has their names, and the others raise
    InputError. Texts are given one by one or as a list; for a list the result is a list.

    Args:
        trained: a TrainedModel.
        jit_compile, progress: as for `load`.
    """

    def __init__(self, trained: TrainedModel, jit_compile: bool | None = None, progress: bool = True):
        self.trained = trained
        self._jit_compile, self._progress = jit_compile, progress
        self._task = families.task_of(trained.config)
        self._tools: dict[str | None, Any] = {}

    @property
    def config(self) -> Config:
        """The settings of its run."""
        return self.trained.config

    @property
    def network(self) -> keras.Model:
        """The Keras model."""
        return self.trained.model

    @property
    def vocabulary(self) -> Vocabulary:
        """Text to token ids and back."""
        return self.trained.vocabulary

    @property
    def abilities(self) -> tuple[str, ...]:
        """The names of the methods that this model has."""
        return self._task.methods

    def __repr__(self) -> str:
        title = families.family_of(self.config).title
        about = f"{title}, {self.config.task}, step {self.trained.step:,}; {', '.join(self.abilities)}"
        return f"<txl_tf.Model {self.trained.model_dir}: {about}>"

    @typing.overload
    def generate(
        self, prompts: str, max_tokens: int = ..., *, seed: int = ..., stop: Sequence[str] = ..., **sampling: Any
    ) -> str: ...

    @typing.overload
    def generate(
        self, prompts: Texts, max_tokens: int = ..., *, seed: int = ..., stop: Sequence[str] = ..., **sampling: Any
    ) -> list[str]: ...

    def generate(
        self,
        prompts: str | Texts,
        max_tokens: int = 200,
        *,
        seed: int = 0,
        stop: Sequence[str] = (),
        **sampling: Any,
    ) -> str | list[str]:
        """Continues a prompt, or each of several. An XLNet does so, too, but is not trained for it.

        Args:
            prompts: str, or a list of them; "" starts from the vocabulary's start token.
            max_tokens: how many tokens to generate for each prompt.
            seed: a continuation depends only on its seed, its prompt and the settings. Equal prompts have seed,
                seed + 1, seed + 2, ..
            stop: strings; a continuation ends before the first of them.
            logits_processor: f(log_prob, texts), in TensorFlow operations, returns log-probabilities. log_prob is
                float32 [B, V], before temperature and the other settings. texts is int32 [B, L], the tokens of the
                prompts and of the continuations so far; -1 where there is no token yet.
            sampling: temperature, top_k, top_p and the other settings of `txl_tf.inference.causal.sampling_settings`.

        Returns:
            The continuation without the prompt, or a list of them.

        Raises:
            InputError: the model does not continue texts, or a setting is out of range.
        """
        tool = self._tool("generate")
        if isinstance(prompts, str):
            with reported("generating", " tokens", shown=self._progress) as report:
                return "".join(tool.stream(prompts, max_tokens, seed=seed, stop=stop, progress=report, **sampling))
        earlier: collections.Counter[Hashable] = collections.Counter()

        def continued(some: list[str]) -> list[str]:
            seeds = [seed + count for count in repeats(some, earlier)]
            return tool.generate(some, max_tokens, seed=seeds, stop=stop, **sampling)

        return self._in_batches("generating", continued, prompts)

    @typing.overload
    def score(self, texts: str, **options: Any) -> Score | PseudoScore: ...

    @typing.overload
    def score(self, texts: Texts, **options: Any) -> list[Score] | list[PseudoScore]: ...

    def score(self, texts: str | Texts, **options: Any) -> Any:
        """How likely a text is, or each of several.

        Args:
            texts: str, or a list of them.
            options: for an XLNet context, a text to read before each text.

        Returns:
            ids, the text's tokens [n]; log_probs [n], each token's log-probability in nats given the tokens before it,
            or for an XLNet given all others; total, their sum. Or a list of such results.

        Raises:
            InputError: the model does not score texts.
        """
        scored = functools.partial(self._tool("score").score, **options)
        return self._of_one_or_all("scoring", scored, texts)

    @typing.overload
    def fill(self, texts: str, **options: Any) -> list[Filling]: ...

    @typing.overload
    def fill(self, texts: Texts, **options: Any) -> list[list[Filling]]: ...

    def fill(self, texts: str | Texts, **options: Any) -> Any:
        """The most likely fillings of the blanks in a text, or in each of several: "The capital of France is ____ ."

        Args:
            texts: str, or a list of them. ____ stands for one token, and ____*3 for three.
            options: order, beam_size, top, context, free, candidates: see `txl_tf.inference.xlnet.fill_in.FillIn.fill`.

        Returns:
            A list of fillings with text, total (the log-probability in nats) and more, the most likely first. Or a list
            of such lists.

        Raises:
            InputError: the model does not fill blanks, a text has none, or a setting is out of range.
        """
        filled = functools.partial(self._tool("fill").fill, **options)
        return self._of_one_or_all("filling", filled, texts)

    def encode(self, texts: Text | Sequence[Text], *, pool: str = "last", batch_size: int = BATCH) -> Encoded:
        """Texts, or pairs of texts, as vectors.

        Args:
            texts: a str, a pair of them as a tuple, or a list of these.
            pool: how a text becomes one vector: "last", the hidden state of its last token, <cls>; "first"; or "mean".
            batch_size: texts at once; does not change the results.

        Returns:
            pooled [B, D], a vector for each text; hidden, for each text [n, D]; ids; and pieces, the tokens.

        Raises:
            InputError: the model does not encode texts, or a setting is out of range.
        """
        with reported("encoding", " texts", shown=self._progress) as report:
            return self._tool("encode")(texts, pool=pool, batch_size=batch_size, progress=report)

    @typing.overload
    def classify(self, texts: Text) -> Prediction: ...

    @typing.overload
    def classify(self, texts: list[Text]) -> list[Prediction]: ...

    def classify(self, texts: Text | list[Text]) -> Prediction | list[Prediction]:
        """The class of a text, or of a pair of texts as a tuple, or of each of a list of these.

        Returns:
            {"label": .., "probability": .., "probabilities": {label: ..}}, or a list of such dicts.

        Raises:
            InputError: the model does not classify.
        """
        return self._predicted("classify", texts)

    def predict(
        self,
        inputs: Any,
        columns: Columns | Mapping[str, Any] | None = None,
        *,
        threshold: float | None = None,
        unsure_below: float | None = None,
    ) -> Any:
        """Predicts for one input, or for each of a list of inputs, with a fine-tuned model.

        The inputs and the predictions, which are dicts, follow from its task: see `txl_tf.inference.tasks.predictor`.
        For a pandas DataFrame the result is a copy of it with the columns prediction and probability.

        Args:
            inputs: an input, a list of them, a column (a Series or an array), or a DataFrame.
            columns: of a DataFrame, by name: {"text": "message"}; None: those of the training table.
            threshold: for several labels, the least probability of a label that is given; None: the best on dev.
            unsure_below: adds unsure: whether the prediction's probability is below this number.

        Raises:
            InputError: the model is not fine-tuned, or an input is not what its task needs.
        """
        options = {"threshold": threshold, "unsure_below": unsure_below}
        if not is_frame(inputs):
            if columns is not None:
                raise InputError("columns are for a DataFrame, and these inputs are none: omit columns")
            return self._predicted("predict", inputs, **options)
        task = self._tool("predict").task
        found = self._of_table("predict", inputs, columns, False, **options)
        return with_predictions(inputs, found.columns_by_line(task))

    def predict_file(self, path: str, columns: Columns | Mapping[str, Any] | None = None) -> list[Prediction]:
        """Predicts for each input in a file with a fine-tuned model, as scripts/predict.py does.

        Args:
            path: in the form that the task is trained on; local or gs://.
            columns: of a table, by name: {"text": "message"}; None: those of the training table.

        Raises:
            InputError: the model is not fine-tuned, or the file cannot be read.
        """
        return self._of_table("predict_file", path, columns, False).predictions

    def evaluate(
        self, data: Any, split: str | None = None, columns: Columns | Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Measures the model.

        Args:
            data: for a language model, the directory of a prepared corpus. For a fine-tuned model, labelled examples: a
                file, a DataFrame, a list of dicts or a dict of lists. Paths are local or gs://.
            split: of a corpus: train, valid or test; None: test.
            columns: of a table, by name: {"text": "message", "label": "team"}; None: those of the training table.

        Returns:
            loss in nats, the numbers that go with it (ppl, bpc, bits_per_byte and tokens, or the task's metrics and
            examples), step and weights.

        Raises:
            InputError: the model cannot be evaluated, or the data cannot be read or is not for this model.
        """
        about = {"step": self.trained.step, "weights": self.trained.weights}
        if isinstance(self._task, families.FineTuning):
            if split is not None:
                raise InputError(
                    f"split={split!r} names a part of a corpus, and this model is evaluated on a file: omit it"
                )
            found = self._of_table("predict", data, columns, True)
            if found.doubt:
                print(found.doubt, file=sys.stderr)
            result = found.metrics
            return {"loss": result["loss"], **result["metrics"], "examples": result["examples"], **about}
        if not isinstance(self._task, families.Pretraining):
            raise unable(self.trained, "evaluate")
        if columns is not None:
            raise InputError("columns are for tables of labelled examples, and this model is evaluated on a corpus")
        corpus = load_corpus(data)
        self.trained.require_vocabulary_of(corpus)
        evaluator = Evaluator(self.config, self.network, corpus, split or "test", make_strategy("one_device"))
        with reported("evaluating", " segments", shown=self._progress) as report:
            return evaluator(lambda done, steps, loss: report(done, steps, loss=loss)) | about

    def _of_table(self, ability: str, data: Any, columns: Any, labelled: bool, **options: Any) -> Predicted:
        """The predictions for a file or a table, which may be a value of Python."""
        table = data if isinstance(data, str) else table_of(data)
        if table is None:
            raise InputError(f"give a file, a DataFrame, a list of dicts or a dict of lists, not {str(data)[:40]!r}")
        tool: Predictor = self._tool(ability)
        with reported("evaluating" if labelled else "predicting", " batches", shown=self._progress) as report:
            return tool.predict_file(table, columns, labelled=labelled, progress=report, **options)

    def _predicted(self, ability: str, inputs: Any, **options: Any) -> Any:
        tool: Predictor = self._tool(ability)
        inputs = inputs.tolist() if hasattr(inputs, "tolist") else inputs
        refuse_paths(inputs)
        with reported("predicting", " batches", shown=self._progress) as report:
            return tool.predict(inputs, progress=report, **options)

    def _of_one_or_all(self, title: str, function: Callable[[Any], Any], texts: str | Texts) -> Any:
        return function(texts) if isinstance(texts, str) else self._in_batches(title, function, texts)

    def _in_batches(self, title: str, function: Callable[[list[str]], list[Any]], texts: Texts) -> list[Any]:
        """function(texts), computed for BATCH texts at a time."""
        if not isinstance(texts, Iterable) or isinstance(texts, (bytes, Mapping)):
            raise InputError(f"give a text or a list of texts, not {texts!r:.40}")
        texts = list(texts)
        for number, text in enumerate(texts, start=1):
            if not isinstance(text, str):
                raise InputError(f"text {number} is {text!r:.40}, not a string")
        found: list[Any] = []
        with progress_bar(title, len(texts), " texts", shown=self._progress) as bar:
            for start in range(0, len(texts), BATCH):
                found += function(texts[start : start + BATCH])
                bar.update(len(found) - start)
        return found

    def _tool(self, ability: str) -> Any:
        """The object behind an ability of this model: see `Task.abilities`."""
        named = self._task.abilities.get(ability)
        if named not in self._tools:  # one object for all abilities of its class
            self._tools[named] = tool_for(self.trained, ability, self._jit_compile)
        return self._tools[named]
