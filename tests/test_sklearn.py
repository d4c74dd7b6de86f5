"""The estimators of scikit-learn: its own tools work with them, and a fitted one stays as it is wherever it goes."""

import pickle
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import random_xlnet
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import classification_report
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import txl_tf
from txl_tf.errors import InputError
from txl_tf.sklearn import XLNetClassifier, XLNetRegressor

WORDS = ("the", "River", "one", "dash", "so", "a")
DRAW = np.random.default_rng(0)
TEXTS = [f"{WORDS[i % 2]} {' '.join(DRAW.choice(WORDS[2:], DRAW.integers(1, 9)))}" for i in range(12)]
NUMBERS = np.arange(12) % 2
NAMES = np.array(["no", "yes"])[NUMBERS]
SETS = np.stack([NUMBERS, 1 - NUMBERS, np.arange(12) % 3 == 0], axis=1).astype(int)
PAIRS = [*zip(TEXTS, TEXTS[1:] + TEXTS[:1], strict=True)]
QUICK = {"train": {"jit_compile": False, "eval_steps": 2, "save_steps": 2}, "eval": {"jit_compile": False}}
SIZES = {"train_steps": 2, "warmup_steps": 0, "batch_size": 4, "tgt_len": 16, "learning_rate": 1e-2}


@pytest.fixture(scope="module")
def init(tmp_path_factory):
    """A model_dir with a small XLNet in float64."""
    folder = tmp_path_factory.mktemp("init")
    random_xlnet.write_model_dir(folder, random_xlnet.with_prefix(), dtype="float64", n_layer=1)
    return str(folder)


@pytest.fixture(scope="module")
def new(init):
    """A function that makes an estimator of a class."""
    return lambda cls, **given: cls(init, settings=QUICK, **{"random_state": 1} | SIZES | given)


@pytest.fixture(scope="module")
def fitted(new):
    return new(XLNetClassifier).fit(TEXTS, NAMES)


def test_predictions_are_those_of_the_model(fitted):
    assert fitted.classes_.tolist() == ["no", "yes"]
    found = fitted.predict_proba(TEXTS)
    wanted = [one["probabilities"] for one in fitted.model_.predict(TEXTS)]
    np.testing.assert_allclose(found, [[one["no"], one["yes"]] for one in wanted])
    assert fitted.predict(TEXTS).tolist() == fitted.classes_[found.argmax(axis=1)].tolist()
    assert fitted.score(TEXTS, NAMES) == np.mean(fitted.predict(TEXTS) == NAMES)
    assert "precision" in classification_report(NAMES, fitted.predict(TEXTS), zero_division=0)
    assert len(fitted.predict([])) == 0 and fitted.predict(["setup.py"]).shape == (1,)


def test_a_random_state_gives_the_same_result_twice(fitted):
    again = clone(fitted).fit(pd.Series(TEXTS, index=range(5, 17)), pd.Series(NAMES))
    np.testing.assert_array_equal(again.predict_proba(np.array(TEXTS)), fitted.predict_proba(TEXTS))


@pytest.mark.slow
def test_another_random_state_gives_another_result(new, fitted):
    other = new(XLNetClassifier, random_state=np.random.RandomState(2)).fit(TEXTS, NAMES)
    assert (other.predict_proba(TEXTS) != fitted.predict_proba(TEXTS)).all()


def test_a_fitted_one_comes_back_equal(fitted, tmp_path):
    """From a pickle, whose bytes hold the model_dir, and from a model_dir."""
    wanted = fitted.predict_proba(TEXTS)
    data = pickle.dumps(fitted)
    fitted.save(str(tmp_path / "saved"))
    for other in (pickle.loads(data), XLNetClassifier.load(str(tmp_path / "saved"))):
        np.testing.assert_array_equal(other.predict_proba(TEXTS), wanted)
        assert other.get_params() == fitted.get_params() and other.classes_.tolist() == ["no", "yes"]
        assert other._folder.name != fitted._folder.name
    found = txl_tf.load(str(tmp_path / "saved"), progress=False).predict(TEXTS)
    np.testing.assert_allclose([one["probabilities"]["no"] for one in found], wanted[:, 0])
    with pytest.raises(InputError, match="is not empty"):
        fitted.save(str(tmp_path / "saved"))
    with pytest.raises(InputError, match="holds a model for classification, not for regression"):
        XLNetRegressor.load(str(tmp_path / "saved"))
    unfitted = pickle.loads(pickle.dumps(clone(fitted)))
    with pytest.raises(NotFittedError):
        unfitted.predict(TEXTS)


def test_an_indicator_matrix_gives_each_text_any_number_of_labels(new):
    found = new(XLNetClassifier).fit(TEXTS, np.column_stack([SETS, np.zeros(12, int)]))
    assert found.classes_.tolist() == [0, 1, 2, 3]  # nobody has the last one
    probabilities, sets = found.predict_proba(TEXTS), found.predict(TEXTS)
    assert probabilities.shape == sets.shape == (12, 4) and not probabilities[:, 3].any()
    np.testing.assert_array_equal(sets[:, 0], ["0" in one["labels"] for one in found.model_.predict(TEXTS)])
    assert 0 <= found.score(TEXTS, np.column_stack([SETS, np.zeros(12, int)])) <= 1


def test_scores_of_pairs(new):
    scores = NUMBERS * 1.5
    found = new(XLNetRegressor, validation_fraction=0).fit(PAIRS, scores)
    wanted = [one["score"] for one in found.model_.predict(PAIRS)]
    for pairs in (PAIRS, np.array(PAIRS), pd.DataFrame(PAIRS)):
        assert found.predict(pairs).tolist() == wanted
    assert found.score(PAIRS, scores) <= 1  # R^2


@pytest.mark.slow
def test_weights_of_texts(new, fitted):
    """They reach the loss; tests/test_finetuner.py has its exact value."""
    same = clone(fitted).fit(TEXTS, NAMES, sample_weight=np.full(12, 3.0))
    np.testing.assert_allclose(same.predict_proba(TEXTS), fitted.predict_proba(TEXTS), rtol=1e-9)
    other = clone(fitted).fit(TEXTS, NAMES, sample_weight=1 + 9 * NUMBERS)
    assert (other.predict_proba(TEXTS)[:, 1] > fitted.predict_proba(TEXTS)[:, 1]).all()
    for weights in (np.ones(3), -np.ones(12), np.full(12, np.nan), np.zeros(12)):
        with pytest.raises(InputError, match="weights"):
            clone(fitted).fit(TEXTS, NAMES, sample_weight=weights)


@pytest.mark.slow
def test_tools_of_scikit_learn(new):
    shorter = make_pipeline(FunctionTransformer(lambda texts: [text[:20] for text in texts]), new(XLNetClassifier))
    scores = cross_val_score(shorter, TEXTS, NAMES, cv=2)
    assert scores.shape == (2,) and ((scores >= 0) & (scores <= 1)).all()
    rates = {"learning_rate": [1e-9, 1e-1]}
    search = GridSearchCV(new(XLNetClassifier, train_steps=6), rates, cv=2, scoring="neg_log_loss").fit(TEXTS, NAMES)
    assert search.best_estimator_.get_params()["learning_rate"] in rates["learning_rate"]
    losses = search.cv_results_["mean_test_score"]
    assert losses[0] != losses[1] and search.best_score_ == max(losses)
    regressor = new(XLNetRegressor)
    assert np.isfinite(cross_val_score(regressor, np.array(PAIRS), NUMBERS * 1.5, cv=2)).all()


@pytest.mark.parametrize(
    "X, y, message",
    [
        ([1, 2, 3], NAMES[:3], "X must hold texts, none of them empty, and has 1"),
        (["a", " ", "b"], NAMES[:3], "X must hold texts, none of them empty, and has ' '"),
        ([("a", "b", "c")] * 3, NAMES[:3], r"X of shape \(3, 3\) must be texts \[n\], or two columns"),
        (TEXTS, NAMES[:3], "X has 12 texts and y 3 labels: give one for each"),
        (TEXTS, ["a"] * 12, "has only the label 'a'"),
        (TEXTS, ["a", "a "] * 6, "y has classes that are empty, or the same as text: 'a', 'a '"),
        (TEXTS, NUMBERS * 0.5, "Unknown label type"),
    ],
)
def test_bad_input(X, y, message, new):
    with pytest.raises(ValueError, match=message):
        new(XLNetClassifier).fit(X, y)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"init": "/nowhere"}, "--init=/nowhere has no config.json"),
        ({"validation_fraction": 0.7}, "validation_fraction=0.7 must be from 0 to 0.5"),
        ({"settings": {"train": {"rate": 1}}}, "rate"),
    ],
)
def test_bad_parameters(given, message, init, new):
    with pytest.raises(InputError, match=message):
        new(XLNetClassifier).set_params(**given).fit(TEXTS, NAMES)


def test_without_scikit_learn_one_line_names_the_command():
    code = "import sys; sys.modules['sklearn'] = None; import txl_tf.sklearn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "scikit-learn is missing: run python -m pip install 'txl_tf[sklearn]'" in done.stderr.splitlines()[-1]


FOR_OTHER_REASONS = {}
"""Checks of scikit-learn that fail although X could be numbers, and why."""

KEPT = {
    "check_estimator_cloneable",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_get_params_invariance",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_requires_y_none",
    "check_set_params",
}
"""Some of the conventions that do not depend on X."""


@pytest.mark.parametrize("cls", [XLNetClassifier, XLNetRegressor])
@pytest.mark.filterwarnings("ignore")
def test_of_scikit_learns_conventions_only_those_about_numbers_as_x_do_not_fit(cls, init):
    """Its tags say that X is text, so that its checks leave them out. Here they claim that it may be numbers."""

    class Claiming(cls):
        __init__ = cls.__init__

        def __sklearn_tags__(self):
            tags = super().__sklearn_tags__()
            tags.input_tags.two_d_array = True
            return tags

    found = check_estimator(Claiming(init), on_fail=None, on_skip=None)
    assert len(found) > 50 and {one["check_name"] for one in found if one["status"] == "passed"} >= KEPT
    failed = [one for one in found if one["status"] == "failed"]
    others = {one["check_name"] for one in failed if not any(map(about_texts, causes(one["exception"])))}
    assert others == FOR_OTHER_REASONS.keys()


def about_texts(error):
    return isinstance(error, InputError) and re.match("X (must hold texts|of shape)", str(error))


def causes(error):
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
