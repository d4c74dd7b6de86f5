"""Estimators of scikit-learn that fine-tune a pretrained XLNet on texts.

Examples:
    >>> from txl_tf.sklearn import XLNetClassifier
    >>> clf = XLNetClassifier("runs/xlnet", random_state=1).fit(texts, labels)
    >>> clf.predict(["A fine film."]), clf.predict_proba(["A fine film."])

X is a list, an array or a Series of texts; or two columns for pairs of texts: a list of pairs, an array [n, 2] or a
DataFrame. This module imports scikit-learn, the extra `sklearn`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from txl_tf.errors import InputError

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_is_fitted, column_or_1d
except ModuleNotFoundError:
    raise ImportError("scikit-learn is missing: run python -m pip install 'txl_tf[sklearn]'") from None

from txl_tf import families
from txl_tf.api import load
from txl_tf.data.tables.frames import table_of
from txl_tf.finetuner import Finetuner
from txl_tf.storage.files import complete_directory, read_bytes, read_json, require_new_directory, write_atomically

ESTIMATOR_FILE = "estimator.json"  # in a saved model_dir: the parameters and the classes

_GROUPS = {  # the parameters that are settings of a run
    "train": ("learning_rate", "train_steps", "warmup_steps"),
    "data": ("batch_size", "tgt_len", "max_segments"),
    "model": ("dropout",),
}


class XLNetEstimator(BaseEstimator):
    """The parts that both estimators share.

    A fitted one has model_, a `txl_tf.Model`, and its model_dir in a temporary folder, whose bytes a pickle holds.

    Args:
        init: a model_dir with a pretrained XLNet, or a folder or zip as published.
        learning_rate, train_steps, warmup_steps, batch_size, tgt_len, max_segments, dropout: settings of fine-tuning;
            None: chosen by the model's size and the number of texts, as `Finetuner` does.
        settings: further settings of the run, {group: {field: value}}.
        validation_fraction: the part of the texts that is held out, at most a half, to choose the best checkpoint by.
            0: all texts are learned, and the checkpoint is chosen by them.
        random_state: of order, dropout, new weights and the texts that are held out.
        verbose: whether to print what fine-tuning says.
    """

    _tasks: tuple[str, ...] = ()

    def __init__(
        self,
        init: str,
        *,
        learning_rate: float | None = None,
        train_steps: int | None = None,
        warmup_steps: int | None = None,
        batch_size: int | None = None,
        tgt_len: int | None = None,
        max_segments: int | None = None,
        dropout: float | None = None,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        validation_fraction: float = 0.1,
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.__dict__.update({name: value for name, value in locals().items() if name != "self"})

    def _fit(self, X: Any, labels: list[Any], task: str, sample_weight: Any) -> None:
        columns = _columns(X)
        if len(labels) != len(columns["text"]):
            raise InputError(f"X has {len(columns['text']):,} texts and y {len(labels):,} labels: give one for each")
        if not 0 <= self.validation_fraction <= 0.5:
            raise InputError(f"validation_fraction={self.validation_fraction} must be from 0 to 0.5")
        settings = {group: dict(values) for group, values in (self.settings or {}).items()}
        for group, names in _GROUPS.items():
            given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
            settings[group] = settings.get(group, {}) | given
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        table: Any = table_of(columns | {"label": labels})
        parts = round(1 / self.validation_fraction) if self.validation_fraction else 0
        held_out = {"part": (0, parts), "part_seed": seed} if parts else {"dev_file": table}
        folder = tempfile.TemporaryDirectory()
        with contextlib.nullcontext() if self.verbose else contextlib.redirect_stdout(io.StringIO()):
            tuner = Finetuner(self.init, task, table, settings=settings, weights=sample_weight, **held_out)
            result = tuner.run(folder.name, seeds=(seed,))
        self._keep(folder)
        if result["collapsed"]:
            warnings.warn(f"training has collapsed: {result['collapsed']}", ConvergenceWarning, stacklevel=3)

    def _keep(self, folder: tempfile.TemporaryDirectory[str]) -> None:
        """Takes over a model_dir, which is removed with the estimator."""
        self._folder, self.model_ = folder, load(folder.name, progress=self.verbose)

    def _files(self) -> dict[str, bytes]:
        """The files of the model_dir that the model needs: of the checkpoints only its own."""
        others = re.compile(rf"(?!ckpt-{self.model_.trained.step}\.)(damaged-)?ckpt-")
        entries = [entry for entry in os.scandir(self._folder.name) if entry.is_file() and not others.match(entry.name)]
        return {entry.name: read_bytes(entry.path) for entry in entries}

    def _predicted(self, X: Any) -> list[dict[str, Any]]:
        check_is_fitted(self, "model_")
        columns = _columns(X)
        second = columns.get("text_b", [""] * len(columns["text"]))
        return self.model_.predict(list(zip(columns["text"], second, strict=True)))

    def save(self, model_dir: str) -> None:
        """Writes a new model_dir, which `load`, `txl_tf.load` and the commands read; InputError if it is not empty."""
        check_is_fitted(self, "model_")
        require_new_directory(model_dir, "model_dir")
        about = {"parameters": self.get_params(), "classes": getattr(self, "classes_", np.zeros(0)).tolist()}
        with complete_directory(model_dir) as folder:
            for name, content in self._files().items():
                write_atomically(os.path.join(folder, name), content)
            text = json.dumps(about, default=lambda value: getattr(value, "item", lambda: None)())  # of NumPy
            write_atomically(os.path.join(folder, ESTIMATOR_FILE), text)

    @classmethod
    def load(cls, model_dir: str) -> Any:
        """That of a local model_dir that `save` or fine-tuning wrote; InputError if its model is of another kind."""
        path = os.path.join(model_dir, ESTIMATOR_FILE)
        about: dict[str, Any] = {"parameters": {"init": model_dir}} | (read_json(path) if os.path.exists(path) else {})
        folder = tempfile.TemporaryDirectory()
        shutil.copytree(model_dir, folder.name, dirs_exist_ok=True)
        estimator = cls(**about["parameters"])
        estimator._keep(folder)
        trained = estimator.model_.trained
        if trained.config.task not in cls._tasks:
            raise InputError(f"{model_dir} holds a model for {trained.config.task}, not for {' or '.join(cls._tasks)}")
        if isinstance(estimator, XLNetClassifier):
            estimator._name_classes(about.get("classes", trained.class_names()))
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_folder", None)
        return state | {"files": self._files()} if state.pop("model_", None) else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state.pop("files", None)
        super().__setstate__(state)
        if files:
            folder = tempfile.TemporaryDirectory()
            for name, content in files.items():
                write_atomically(os.path.join(folder.name, name), content)
            self._keep(folder)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        if tags.classifier_tags:
            tags.classifier_tags.multi_label = True
        return tags


class XLNetClassifier(ClassifierMixin, XLNetEstimator):
    """Classes of texts or pairs; of an indicator matrix as y, any number of labels. Arguments: see `XLNetEstimator`."""

    _tasks = ("classification", "multi_label")

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> XLNetClassifier:
        """Fine-tunes on texts X [n] and their classes y [n], or an indicator matrix [n, labels].

        sample_weight, [n]: how much each text counts in the loss of its batch. InputError for what cannot be used.
        """
        if type_of_target(y) == "multilabel-indicator":
            matrix = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
            task, classes = "multi_label", np.arange(matrix.shape[1])
            labels: list[Any] = [[str(i) for i in np.flatnonzero(row)] for row in matrix]
        else:
            found = column_or_1d(y, warn=True)
            check_classification_targets(found)
            task, classes, labels = "classification", np.unique(found), [str(one) for one in found.tolist()]
            names = {label.strip() for label in labels} - {"", "nan", "None"}
            if len(names) < len(classes):
                shown = ", ".join(map(repr, classes.tolist()[:10]))
                raise InputError(f"y has classes that are empty, or the same as text: {shown}")
        self._fit(X, labels, task, sample_weight)
        self._name_classes(classes)
        return self

    def _name_classes(self, classes: Any) -> None:
        self.classes_ = np.asarray(classes)
        self._names = [str(one).strip() for one in self.classes_.tolist()]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class of `classes_` for each text, [n, C]; several labels: each by itself."""
        rows = [[one["probabilities"].get(name, 0.0) for name in self._names] for one in self._predicted(X)]
        found = np.asarray(rows, float).reshape(-1, len(self._names))
        return found if self._several else found / found.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The class of each text, [n]; for several labels an indicator matrix [n, labels]."""
        if not self._several:
            return self.classes_[self.predict_proba(X).argmax(axis=1)]
        rows = [[name in one["labels"] for name in self._names] for one in self._predicted(X)]
        return np.asarray(rows, int).reshape(-1, len(self._names))

    @property
    def _several(self) -> bool:
        check_is_fitted(self, "model_")
        return not families.task_of(self.model_.config, families.FineTuning).one_class


class XLNetRegressor(RegressorMixin, XLNetEstimator):
    """Scores of texts or pairs. Arguments: see `XLNetEstimator`."""

    _tasks = ("regression",)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> XLNetRegressor:
        """Fine-tunes on texts X [n] and their scores y [n]; see `XLNetClassifier.fit`."""
        self._fit(X, column_or_1d(y, warn=True).astype(float).tolist(), "regression", sample_weight)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The score of each text, [n]."""
        return np.asarray([one["score"] for one in self._predicted(X)], float)


def _columns(X: Any) -> dict[str, list[str]]:
    """The texts, and the second texts of pairs, by the names of a table's columns."""
    found = np.asarray(X, dtype=object)
    found = found.reshape(-1, 1) if found.ndim == 1 else found
    if found.ndim != 2 or found.shape[1] not in (1, 2):
        raise InputError(f"X of shape {found.shape} must be texts [n], or two columns of texts [n, 2]")
    for row in found:
        if not all(isinstance(text, str) for text in row) or not row[0].strip():
            raise InputError(f"X must hold texts, none of them empty, and has {row[0]!r:.40}")
    return dict(zip(("text", "text_b"), found.T.tolist(), strict=False))
