"""The study of the Penn Treebank: its variants, its text, and a run in two pieces."""

import collections
import gzip
import json
import pathlib
import re

import processes
import ptb
import pytest

from txl_tf import families
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.runs.parameters import parameter_table

ROOT = pathlib.Path(__file__).parents[2]


def config_of(scale, variant):
    """The settings that a variant's flags give, as scripts/train.py reads them."""
    preset, groups = families.presets()[scale.preset].config, collections.defaultdict(dict)
    kinds = preset.groups()
    for flag, value in scale.flags(variant).items():
        if flag.startswith("eval_") and has(kinds["eval"], flag.removeprefix("eval_")):
            groups["eval"][flag.removeprefix("eval_")] = value
        elif flag != "preset":
            (group,) = [name for name in kinds if name != "eval" and has(kinds[name], flag)]
            groups[group][flag] = value
    return preset.replace(**groups)


def has(kind, field):
    return field in kind.__dataclass_fields__ or field in kind.bundles


@pytest.mark.parametrize("size", ["small", "paper"])
def test_variants_are_runs_that_can_start_and_differ(size):
    scale = ptb.SCALES[size]
    configs = {variant: config_of(scale, variant) for variant in scale.variants}
    assert len(set(configs.values())) == len(configs) and set(configs) <= set(ptb.TITLES)
    if size == "small":
        none = configs["none"]
        assert none.model.rates == (0,) * 6 and not (none.model.dropemb or none.model.dropatt or none.train.l2)
        assert not (none.objective.activation_penalty or none.objective.slowness_penalty or none.data.tgt_len_std)


def test_the_preset_has_the_parameters_that_the_paper_tells():
    preset = families.presets()["ptb"]
    model = TransformerXL(preset.config.model)
    assert model.count_params() == preset.parameters == 24_041_160
    assert "24,041,160" in parameter_table(model)


@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.parametrize("target", ["tpu", "gpu"])
def test_the_recipe_lowers_for_other_devices(target):
    from aot import steps

    config = families.presets()["ptb"].config.replace(model={"n_layer": 2})
    for step in (steps.train(config, 2, target=target), steps.evaluate(config, 2, target=target)):
        assert any("layer_1" in name for name in step.parameters)


def test_where_a_run_stands():
    assert ptb.standing(float("inf")) == "The paper has 54.5 on test; no run has been tested yet."
    assert ptb.standing(55.0) == "The paper has 54.5 on test; the best run has 55.00, 0.50 more."


@pytest.mark.slow
def test_the_command_prepares_trains_and_tests_in_pieces(tmp_path):
    """With flags of a tiny model in place of the study's: stopped by its own clock, continued, reported in a page."""
    source = tmp_path / "source"
    source.mkdir()
    text = "".join(f" the {word} is <unk> and N {word}\n" for word in ("cat", "dog", "bird", "fish") * 500).encode()
    for split in ("train", "valid"):
        (source / f"ptb.{split}.txt").write_bytes(text)
    (source / "ptb.test.txt.gz").write_bytes(gzip.compress(text))
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n---\n")
    program = (
        "import runpy, sys; sys.path[:0] = ['evidence/studies', 'scripts']; import ptb, study;"
        "tiny = dict(n_layer=1, d_model=8, d_embed=8, n_head=1, d_head=8, d_inner=8, train_steps=60, warmup_steps=2,"
        "average_from_step=40, log_steps=10, eval_steps=30, save_steps=30, steps_per_loop=10);"
        "small = ptb.SCALES['small'];"
        "ptb.SCALES['small'] = study.Scale('ptb', {**small.settings, **tiny}, {'all': {}}, (1,));"
        "from command_line import run; study.define_flags();"
        "ptb.flags.DEFINE_string('source', None, '', required=True); ptb.flags.DEFINE_integer('minutes', 0, '');"
        "run(ptb.main)"
    )
    flags = [f"--source={source}", f"--out={tmp_path}/out", f"--page={page}"]
    for _ in range(2):  # the second time there is nothing left to do
        done = processes.run(["-c", program, *flags], cwd=ROOT)
        assert done.returncode == 0, done.stderr
    assert re.search(r"everything on \| [\d.]+ \| [\d.]+ \| [\d.]+ \| 60 ", page.read_text())
    record = json.loads((tmp_path / "out" / "jobs" / "all-1-averaged.json").read_text())
    assert record["finished"] and record["lines"][-1]["split"] == "test"
    assert page.with_suffix(".svg").exists()
