"""Measurements that were killed while they wrote go on, and lose nothing."""

import json

from processes import ROOT, run

BEGIN = """
import pathlib, subprocess, sys, types
sys.path[:0] = ["evidence/bench", "scripts"]
whole, folder = pathlib.Path.write_text, pathlib.Path(sys.argv[1])
line = types.SimpleNamespace(stdout='{"speed": 1.5}\\n')


def killed_while_writing(function, module):
    def half(path, text):
        whole(path, text[: len(text) // 2])
        raise KeyboardInterrupt

    module.subprocess = types.SimpleNamespace(run=lambda *_, **__: line, PIPE=subprocess.PIPE)
    pathlib.Path.write_text = half
    try:
        function()
    except KeyboardInterrupt:
        pathlib.Path.write_text = whole
    function()
"""
RESULTS = """
import results
results.FOLDER, results.BENCHMARKS, results.commit = folder, {"new": ("new.py", ())}, lambda: "abc"
sys.argv = ["results.py", "--machine=m"]
killed_while_writing(results.main, results)
"""
LEARNING = """
import xlnet_learning
xlnet_learning.TESTS = {"old": ("run", ()), "new": ("run", ())}
xlnet_learning.FLAGS(["xlnet_learning.py", "--data_dir=none", f"--out={folder}"])
killed_while_writing(xlnet_learning.evaluated, xlnet_learning)
"""
TRANSFER = """
import json, transfer
flags = (f"--{name}=none" for name in ("init", "train", "dev", "test", "out"))
transfer.FLAGS(["transfer.py", *flags, "--task=answering"])


def predict(*_, **__):
    with open(folder / "test.jsonl", "x"):
        return '{"best_f1": 0.5, "step": 7}'


transfer.script = predict
(folder / "test.jsonl").write_text("half of")
print(json.dumps(transfer.tested(folder)))
"""


def ran(program, folder):
    done = run(["-c", BEGIN + program, str(folder)], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_results_of_a_machine(tmp_path):
    (tmp_path / "m.json").write_text(json.dumps({"measured": {"old": {"commit": "abc"}}}))
    ran(RESULTS, tmp_path)
    measured = json.loads((tmp_path / "m.json").read_text())["measured"]
    assert measured["old"] == {"commit": "abc"} and measured["new"]["result"] == {"speed": 1.5}


def test_what_small_xlnets_learn(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    (tmp_path / "test.json").write_text('{"old": {"loss": 2.0}}')
    ran(LEARNING, tmp_path)
    assert json.loads((tmp_path / "test.json").read_text()) == {"old": {"loss": 2.0}, "new": {"speed": 1.5}}


def test_what_pretraining_is_worth(tmp_path):
    assert json.loads(ran(TRANSFER, tmp_path)) == {"best_f1": 0.5}
    assert json.loads((tmp_path / "test.json").read_text())["step"] == 7
