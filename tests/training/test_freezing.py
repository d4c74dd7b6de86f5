"""Frozen weights: which they are, that nothing touches them, and that nothing is kept for them."""

import pathlib
import re

import keras
import numpy as np
import processes
import pytest
import tensorflow as tf
from small_run import CONFIG, KilledError, change, evaluator, lines

from txl_tf import families
from txl_tf.devices import host_memory
from txl_tf.errors import InputError
from txl_tf.runs.checkpoints import checkpoint_reader
from txl_tf.runs.model_dir import load_trained
from txl_tf.runs.parameters import freeze, frozen_paths
from txl_tf.training.loop import train
from txl_tf.training.needs import require_memory
from txl_tf.training.setup import TrainingSetup
from txl_tf.training.step import loss_and_gradients

ROOT = pathlib.Path(__file__).parents[2]
FROZEN = change(
    CONFIG, model={"n_layer": 2}, train={"freeze": "embedding,layers:0", "ema_decay": 0.5, "layer_decay": 0.5}
)
PATHS = [
    *("m/embedding/table_0", "m/layer_0/attention/key_kernel", "m/layer_1/attention/key_kernel"),
    *("m/layer_1/attention_norm/gamma", "m/layer_10/feed_forward/inner/kernel", "m/softmax/bias_0"),
]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("", []),
        ("embedding", [0]),
        ("layers:1", [2, 3]),
        ("layers:0-1", [1, 2, 3]),
        ("layer", [1, 2, 3, 4]),
        ("layer/attention", [1, 2]),
        ("layer/attention_norm/gamma,softmax", [3, 5]),
    ],
)
def test_names(names, found):
    assert frozen_paths(names, PATHS) == {PATHS[i] for i in found}


@pytest.mark.parametrize("names", ["embed", "layers:11", "layers:9-12", "layers:1-0", "embedding,", "layers:x", "m"])
def test_names_that_fit_no_weight_are_refused(names):
    with pytest.raises(InputError, match=r"fits no weight of this model: choose from layers:0-10, embedding, layer, s"):
        frozen_paths(names, PATHS)


def begin(corpus, strategy, config=FROZEN):
    config = change(config, model={"vocab_size": corpus.vocabulary.vocab_size})
    return TrainingSetup.of(config, families.task_of(config).training_data(corpus, config), strategy)


def is_frozen(path):
    return "/embedding/" in path or "/layer_0/" in path


@pytest.mark.parametrize("replicas", ["one_device", pytest.param("two_replicas", marks=pytest.mark.slow)])
def test_a_killed_run_continues_exactly_and_frozen_weights_stay(corpus, tmp_path, request, replicas):
    """Bit for bit: the frozen weights are the first ones, the others those of a run without a kill."""
    strategy = request.getfixturevalue(replicas)
    config = change(FROZEN, model={"vocab_size": corpus.vocabulary.vocab_size})
    losses = iter([1.0, 1.0, None, 1.0])

    def measure():
        if (loss := next(losses)) is None:
            raise KilledError
        return loss

    train(config, corpus, str(tmp_path / "whole"), strategy, evaluator(measure))
    with pytest.raises(KilledError):  # at step 6; the last save was at 4
        train(config, corpus, str(tmp_path / "killed"), strategy, evaluator(measure))
    losses = iter([1.0, 1.0])
    train(config, corpus, str(tmp_path / "killed"), strategy, evaluator(measure))
    assert lines(tmp_path / "killed") == lines(tmp_path / "whole")

    keras.utils.set_random_seed(config.train.seed)
    first = families.make_model(config)
    for weights in ("last", "average"):
        whole, killed = (load_trained(str(tmp_path / run), weights).model for run in ("whole", "killed"))
        for mine, theirs, initial in zip(whole.variables, killed.variables, first.variables, strict=True):
            np.testing.assert_array_equal(mine, theirs)
            assert (np.asarray(mine) == np.asarray(initial)).all() == is_frozen(mine.path), mine.path

    stored = checkpoint_reader(str(tmp_path / "whole" / "ckpt-12")).get_variable_to_shape_map()
    named = [name.replace(".S", "/") for name in stored]
    assert sum(is_frozen(name) for name in named if name.startswith("model/")) > 5
    assert not any(is_frozen(name) for name in named if name.startswith(("optimizer/", "average/")))
    assert any("/layer_1/" in name for name in named if name.startswith("average/"))


def test_gradients_of_the_others_are_as_without_freezing(corpus, one_device):
    found = {}
    for names in ("", "embedding,layers:0"):
        begun = begin(corpus, one_device, change(FROZEN, model={"dtype": "float64"}, train={"freeze": names}))
        batch, state = next(begun.batches(0)), begun.initial_state()
        place = (tf.constant([1, 0]), tf.constant(0), tf.constant(0))
        sums, _ = loss_and_gradients(begun.objective, begun.optimizer.variables, begun.settings, place, batch, state)
        paths = [variable.path for variable in begun.optimizer.variables]
        found[names] = dict(zip(paths, sums.gradients, strict=True)), begun.optimizer.rules
    (every, all_rules), (some, rules) = found.values()
    assert some.keys() == {path for path in every if not is_frozen(path)}
    for path, gradient in some.items():
        np.testing.assert_allclose(gradient, every[path], rtol=1e-12, atol=1e-14)
    assert rules == [rule for path, rule in zip(every, all_rules, strict=True) if path in some]


@pytest.mark.xla
def test_no_gradient_is_computed_below_the_lowest_trained_weight(corpus, one_device):
    """Where the two lowest of three layers are frozen, the backward pass has the products of one layer."""

    def count(names):
        begun = begin(corpus, one_device, change(FROZEN, model={"n_layer": 3}, train={"freeze": names}))
        batch, state = next(begun.batches(0)), begun.initial_state()

        @tf.function(autograph=False, jit_compile=True)
        def gradients(batch, state):
            place = (tf.constant([1, 0]), tf.constant(0), tf.constant(0))
            return loss_and_gradients(begun.objective, begun.optimizer.variables, begun.settings, place, batch, state)

        program = gradients.experimental_get_compiler_ir(batch, state)("hlo")
        return len(re.findall(r" dot\(", program))

    counts = {names: count(names) for names in ("", "embedding,layers:0-1", "embedding,layers:1-2")}
    assert counts["embedding,layers:0-1"] < 0.75 * counts[""]
    assert counts["embedding,layers:0-1"] < counts["embedding,layers:1-2"]


def test_memory_is_counted_without_what_frozen_weights_do_not_need(monkeypatch):
    def needed(names):
        found = {}
        monkeypatch.setattr(host_memory, "require", found.update)
        model = families.make_model(FROZEN)
        freeze(model, names)
        objective = families.task_of(FROZEN).objective(model, FROZEN)
        require_memory(FROZEN, tf.distribute.OneDeviceStrategy("/cpu:0"), objective)
        return next(iter(found.values()))

    model = families.make_model(FROZEN)
    whole, frozen = (
        sum(variable.numpy().nbytes for variable in model.variables if path_is(variable.path))
        for path_is in (lambda path: True, is_frozen)
    )
    assert needed("") == 5 * whole  # a weight, its gradient, two moments, its average
    assert needed("embedding,layers:0") == 5 * whole - 4 * frozen


def test_nothing_left_to_train_is_refused(corpus, one_device, tmp_path):
    config = change(FROZEN, train={"freeze": "embedding,layer,softmax,content_bias,position_bias"})
    with pytest.raises(InputError, match="position_bias leaves no weight to train: freeze less"):
        train(config, corpus, str(tmp_path), one_device)
    assert not [path for path in tmp_path.iterdir() if path.name != "lock.json"]


def test_the_commands(corpus, tmp_path):
    """train.py freezes, a wrong name is one line, and the card shows the names and what was frozen."""
    model = ["--n_layer=2", "--d_model=8", "--d_embed=8", "--n_head=1", "--d_head=8", "--d_inner=8", "--mem_len=8"]
    run = [f"--data_dir={corpus.data_dir}", "--preset=enwik8_base", "--batch_size=4", "--tgt_len=8"]
    short = ["--train_steps=2", "--warmup_steps=0", "--eval_steps=0", "--log_steps=1", "--nojit_compile"]
    command = [ROOT / "scripts/train.py", f"--model_dir={tmp_path}/r", *model, *run, *short]
    wrong = processes.run([*command, "--freeze=embeding"])
    assert wrong.returncode == 1 and wrong.stderr.startswith("error: freeze=embeding: 'embeding' fits no weight of")
    assert "Traceback" not in wrong.stderr and not (tmp_path / "r/config.json").exists()
    done = processes.run([*command, "--freeze=embedding,layers:1"])
    assert done.returncode == 0, done.stderr
    assert ", 76.8% of the parameters frozen" in done.stdout, done.stdout
    card = processes.run([ROOT / "scripts/describe_model.py", f"--model_dir={tmp_path}/r"]).stdout
    for row in ("embedding/table_0 (frozen) | 256 x 8 | 1 |", "layer/attention/key_kernel (frozen) | 8 x 1 x 8 | 1 |"):
        assert row in card
    assert "| layer/attention/key_kernel | 8 x 1 x 8 | 1 |" in card and "| freeze | embedding,layers:1 |" in card
    other = processes.run([*command, "--freeze=embedding"])
    assert "freeze='embedding' (was 'embedding,layers:1')" in other.stderr
