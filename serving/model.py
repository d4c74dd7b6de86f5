"""A SavedModel: of which kind it is, if scripts/export_savedmodel.py wrote it, and its signatures."""

import contextlib
import dataclasses
import json
import math
import os

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.eager import cancellation

from serving import loading
from serving.answers.pieces import Pieces
from serving.errors import RequestError, StartError, one_line

CACHE = ("keys", "values", "length", "seen")
"""The tensors of a cache; their first axis is the text."""
CONTINUING = (
    "/sampling",
    "/generate",
    "/stream",
    "/sessions",
    "/v1/completions",
    "/tokenize",
    "/detokenize",
    "/tokenizer_info",
)
"""The routes of models that continue texts."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of model.

    Attributes:
        title: its name in messages.
        routes: its routes, besides those of every server.
        inputs: of the signatures that the routes need, by signature, without settings of sampling.
        newer: the same for those of `CONTINUING`, which older exports of its kind lack.
        encode, decode: the names of the signatures that `CONTINUING` need for texts.
        note: what users of `CONTINUING` should know.
    """

    title: str
    routes: tuple[str, ...]
    inputs: dict[str, tuple[str, ...]]
    newer: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    encode: str = "encode"
    decode: str = "decode"
    note: str = ""


_PAIRS, _ASKED = ("texts", "second"), ("questions", "contexts")
_FILL = ("context", "order", "beam_size", "top", "free")
_READ = ("kept_start", "kept_start_log_prob", "kept_end", "kept_end_log_prob", "kept_impossible")
_CACHED = {
    "initial_cache": ("batch_size",),
    "step": ("tokens", *CACHE),
    "write": ("tokens", "max_tokens", "seeds", *CACHE),
}
KINDS = {
    "generate": Kind(
        "a Transformer-XL",
        (*CONTINUING, "/score"),
        {"score": ("texts",), "encode": ("texts",), "decode": ("tokens", "after"), **_CACHED},
    ),
    "fill": Kind(
        "an XLNet",
        ("/fill", "/encode", "/score", *CONTINUING, "/v1/embeddings"),
        {
            "fill_part": ("texts", *_FILL, "begin", "end", "kept_tokens", "kept_log_probs", "kept_total"),
            "score_part": ("texts", "begin", "end", "at_once"),
            "tokenize": ("texts",),
        },
        {"decode_after": ("tokens", "after"), **_CACHED},
        encode="tokenize",
        decode="decode_after",
        note="An XLNet is trained to fill gaps, not to continue texts: this text may soon make little sense.",
    ),
    "classify": Kind("an XLNet for classification", ("/classify",), {"classify": _PAIRS}),
    "label": Kind("an XLNet for multi-label classification", ("/label",), {"label": _PAIRS}),
    "regress": Kind("an XLNet for regression", ("/regress",), {"regress": _PAIRS}),
    "choose": Kind("an XLNet for multiple choice", ("/choose",), {"choose": ("articles", "questions", "options")}),
    "tag": Kind("an XLNet for tagging", ("/tag",), {"tag": ("texts",)}),
    "answer": Kind(
        "an XLNet that answers questions",
        ("/answer",),
        {"answer_part": (*_ASKED, "begin", "end"), "answer_whole": (*_ASKED, *_READ)},
    ),
}
"""The kinds, each by a signature that no earlier kind has."""
MOST_WORDS = 1 << 15
"""The most words "a" in a text with which the server tries its model."""
OTHER = Kind("a SavedModel", (), {})
"""One of another program, or of a task that has no route: its signatures are asked as TensorFlow Serving's."""

_SETTING = {
    "name": str,
    "type": str,
    "default": (int, float),
    "low": (int, float),
    "above_low": bool,
    "high": (int, float, type(None)),
    "range": str,
}
"""The fields of a setting of sampling, and their types."""


class ServedModel:
    """A SavedModel.

    Args:
        export_dir: what scripts/export_savedmodel.py wrote, or another SavedModel.
        name: None: that of the folder; of the folder above it, if the folder's is a version.

    Attributes:
        kind: its Kind.
        name: in one line.
        version: a number as a text: the folder's name if it is one, as for TensorFlow Serving.
        created: when it was written, in seconds since 1970.
        definitions: the SignatureDefs in its file, by name.
        step: of its weights; None: the export does not say.
        page: what the page needs and model.json has: whether it learned from pairs, its threshold, examples.
        words: how many words "a" need each length of rows for which the model is traced; (): the export does not say.
        title: kind, name and step, in words.
        routes: the routes of its kind that it can answer.
        continues: whether it can continue texts.
        settings: of sampling, from sampling.json; if it continues no texts there are none.
        vocab_size: of the signature `step`, else 0.
        empty_cache: the tensors of `CACHE` before any text is read, by name; empty for other models.
        cache_bytes: of the cache of one text, else 0.
        segment: tokens that the signature `read` takes; 0: there is no such signature, as in older exports.
        pieces: a Pieces; None: the model has no signature `decode`.
        rates: whether it can give alternatives for a token that it reads or writes.

    Raises:
        StartError: it is damaged, or not such a model.
    """

    def __init__(self, export_dir, name=None):
        try:
            _check_files(export_dir)
            if not tf.saved_model.contains_saved_model(export_dir):
                raise StartError("it has no saved_model.pb, which export_savedmodel writes for a model_dir")
            # TensorFlow's graph optimizer would only delay the first call.
            tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
            self._root = loading.load(export_dir)  # its variables live as long as it does
            self.signatures = self._root.signatures
            if not self.signatures:
                raise StartError("it has no signatures")
            self.kind, self.definitions = kind_of(self.signatures), read_definitions(export_dir)
            *_, above, folder = ("", *os.path.abspath(export_dir).split(os.sep))
            self.version = folder if folder.isascii() and folder.isdigit() else "1"
            self.name = one_line(name or (above if folder == self.version else folder))
            self.step, self.words, self.page = read_about(export_dir)
            self.created = int(tf.io.gfile.stat(tf.io.gfile.join(export_dir, "saved_model.pb")).mtime_nsec // 1e9)
            self.title = f"{self.kind.title}, {self.name}, step {'unknown' if self.step is None else f'{self.step:,}'}"
            self.continues = "write" in self.signatures
            self.settings = read_settings(export_dir) if self.continues else []
            self._check_signatures()
            vectors = () if "encode" in self.signatures else ("/encode", "/v1/embeddings")
            lacking = {*vectors, *(() if self.continues else CONTINUING)}
            self.routes = tuple(route for route in self.kind.routes if route not in lacking)
            self.vocab_size, self.empty_cache, self.segment = 0, {}, 0
            if self.continues:
                self.vocab_size = int(self.signatures["step"].structured_outputs["log_probs"].shape[-1])
                cache = self.signatures["initial_cache"](batch_size=tf.constant(1))
                self.empty_cache = {name: cache[name] for name in CACHE}
                if "read" in self.signatures:
                    self.segment = self.signatures["read"].structured_input_signature[1]["tokens"].shape[1]
            self.pieces = Pieces(self) if "decode" in self.signatures else None
            self.rates = bool(self.segment and self.pieces)
            self.cache_bytes = sum(value.dtype.size * math.prod(value.shape) for value in self.empty_cache.values())
        except Exception as error:  # a damaged SavedModel can raise anything
            raise StartError(f"{export_dir} is not an exported model: {one_line(error)}") from None

    def __call__(self, signature, **tensors):
        """The outputs of a signature by name; its errors about inputs are RequestErrors."""
        try:
            return self.signatures[signature](**tensors)
        except tf.errors.InvalidArgumentError as error:  # the model checks its inputs itself
            raise RequestError(400, reason_of(error.message)) from None
        except tf.errors.ResourceExhaustedError as error:
            raise RequestError(413, f"the request needs too much memory: {one_line(error.message, 100)}") from None

    @contextlib.contextmanager
    def cancellable(self):
        """In this context another thread can cancel a thread's calls of signatures, with the function that is yielded.

        They then end at the next round of a loop in their graph, with tf.errors.CancelledError: generation within 64
        tokens, reading within a segment. TensorFlow has no public name for this.
        """
        manager = cancellation.CancellationManager()
        with cancellation.CancellationManagerContext(manager):
            yield manager.start_cancel

    def _check_signatures(self):
        for name, inputs in (self.kind.inputs | (self.kind.newer if self.continues else {})).items():
            if name not in self.signatures:
                raise StartError(f"it has no signature {name}: export the model again")
            settings = [setting["name"] for setting in self.settings] if name == "write" else []
            found = set(self.signatures[name].structured_input_signature[1])
            if found != {*inputs, *settings}:
                raise StartError(
                    f"the signature {name} takes {', '.join(sorted(found))}, and not "
                    f"{', '.join([*inputs, *settings])}: export the model again"
                )
        if (
            self.kind is not OTHER
            and "classify" in self.signatures
            and self.signatures["classify"].structured_outputs["classes"].shape.rank != 2
        ):
            raise StartError("the output classes has no row for each text: export the model again")


def _check_files(export_dir):
    """Raises StartError if something is not a file, such as a pipe, for which TensorFlow would wait."""
    for folder, _, names in os.walk(export_dir if "://" not in export_dir else ""):
        for name in names:
            if not os.path.isfile(path := os.path.join(folder, name)):
                raise StartError(f"{path} is not a file")


def reason_of(message):
    """The reason in the message of an InvalidArgumentError, in one line, without the places in programs."""
    _, asserted, reason = message.partition("assertion failed: [")
    if asserted:
        return one_line(reason.partition("]")[0])
    lines = message.partition("\n\t [[")[0].strip().splitlines()
    return one_line(lines[-1] if lines else "")


def kind_of(signatures):
    """The Kind of a model; `OTHER` if a signature of that name takes nothing that the kind's takes."""
    for name in reversed(KINDS):
        if name in signatures:
            wanted = KINDS[name].inputs.get(name)
            if wanted is None or {*wanted} & {*signatures[name].structured_input_signature[1]}:
                return KINDS[name]
    return OTHER


def read_definitions(export_dir):
    """The SignatureDefs in a SavedModel's file, by name."""
    path, saved = tf.io.gfile.join(export_dir, "saved_model.pb"), saved_model_pb2.SavedModel()
    with tf.io.gfile.GFile(path, "rb") as file:
        saved.ParseFromString(file.read())
    return dict(saved.meta_graphs[0].signature_def)


def read_about(export_dir):
    """`ServedModel.step`, `words` and `page`, which the export wrote into model.json.

    (None, (), {}) for an older export.
    """
    path = tf.io.gfile.join(export_dir, "model.json")
    if not tf.io.gfile.exists(path):
        return None, (), {}
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            about = json.loads(file.read())
        step, words = about["step"], about.get("words", [])
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise StartError("its model.json is damaged: export the model again, or delete it") from None
    if type(step) is not int or step < 0:
        raise StartError("the step in its model.json is not a number of updates: export the model again, or delete it")
    if not isinstance(words, list) or not all(type(count) is int and 0 <= count < MOST_WORDS for count in words):
        raise StartError("words in its model.json are not numbers of words: export the model again, or delete it")
    page = {name: about[name] for name in _PAGE if name in about}
    for name, value in page.items():
        if not _PAGE[name](value):
            raise StartError(f"{name} in its model.json is damaged: export the model again, or delete it")
    return step, tuple(words), page


def _is_example(value):
    """Whether a value is an example: texts, or lists of texts, by the names of fields."""
    parts = [part for one in value.values() for part in (one if isinstance(one, list) else [one])] if value else [None]
    return all(isinstance(part, str) for part in parts)


_PAGE = {
    "pairs": lambda value: isinstance(value, bool),
    "threshold": lambda value: type(value) in (int, float) and 0 <= value <= 1,
    "examples": lambda value: (
        isinstance(value, list) and all(isinstance(one, dict) and _is_example(one) for one in value)
    ),
}
"""The facts for the page in model.json, and whether a value is one."""


def read_settings(export_dir):
    """The settings of sampling that the export wrote into sampling.json, checked."""
    path = tf.io.gfile.join(export_dir, "sampling.json")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            settings = json.loads(file.read())
    except RecursionError:
        raise StartError("its sampling.json is nested too deeply") from None
    except ValueError as error:
        raise StartError(f"its sampling.json is not JSON: {one_line(error)}") from None
    if not isinstance(settings, list) or not all(isinstance(setting, dict) for setting in settings):
        raise StartError("its sampling.json must be a list of objects")
    for setting in settings:
        for field, kind in _SETTING.items():
            right = field in setting and isinstance(setting[field], kind)
            if not right or (isinstance(setting[field], bool) and kind is not bool):
                raise StartError(f"a setting in its sampling.json has a wrong {field}, or none")
        if setting["type"] not in ("int", "float"):
            raise StartError(f"a setting in its sampling.json is neither int nor float: {setting['type'][:50]!r}")
    return settings
