"""What a continued run keeps of its beginning."""

import json

import pytest
from small_run import CONFIG, change

from txl_tf.errors import InputError
from txl_tf.runs.model_dir import CONFIG_FILE, read_config
from txl_tf.training.same_run import as_begun, refuse_other_settings


def of_an_older_version(folder, program):
    """A model_dir of a version that measured which program is faster, and kept its choice as `program`."""
    groups = json.loads(CONFIG.replace(train={"jit_compile": True}).to_json())
    groups["train"]["program"] = program
    (folder / CONFIG_FILE).write_text(json.dumps(groups))
    return str(folder)


@pytest.mark.parametrize(("program", "jit_compile"), [("kernels", False), ("xla", True), ("", True)])
def test_a_run_of_an_older_version_keeps_the_program_of_its_steps(program, jit_compile, tmp_path):
    model_dir = of_an_older_version(tmp_path, program)
    preset = change(CONFIG, train={"jit_compile": True})
    for _ in range(2):  # the second time from a config.json of today
        old, continued = read_config(model_dir), as_begun(preset, model_dir)
        assert old.train.jit_compile is continued.train.jit_compile is jit_compile
        refuse_other_settings(old, continued, model_dir)
        (tmp_path / CONFIG_FILE).write_text(continued.to_json())


def test_a_run_with_xla_does_not_go_on_without(tmp_path):
    model_dir = of_an_older_version(tmp_path, "xla")
    config = as_begun(change(CONFIG, train={"jit_compile": False}), model_dir)
    with pytest.raises(InputError, match=r"jit_compile=False \(was True\)"):
        refuse_other_settings(read_config(model_dir), config, model_dir)


def test_a_run_keeps_what_computes_it(tmp_path):
    (tmp_path / CONFIG_FILE).write_text(CONFIG.replace(train={"ops": "fewer"}).to_json())
    assert as_begun(CONFIG, str(tmp_path)).train.ops == "fewer"
    other = as_begun(CONFIG.replace(train={"ops": "plain"}), str(tmp_path))
    with pytest.raises(InputError, match=r"ops='plain' \(was 'fewer'\)"):
        refuse_other_settings(read_config(str(tmp_path)), other, str(tmp_path))


def test_a_new_run_is_as_it_is_given(tmp_path):
    assert as_begun(CONFIG, str(tmp_path)) is CONFIG
