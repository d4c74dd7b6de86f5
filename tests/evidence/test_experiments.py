"""The runner of studies with commands that only write down what happened, and each study's own arithmetic."""

import collections
import json
import math
import random
import time

import ablations
import key_values
import pytest
import recall
import samples
from jobs import Job, as_flags, read_record, run_jobs

from txl_tf import families
from txl_tf.errors import InputError

SCRIPT = """
import json, os, pathlib, signal, sys, time
flags = dict(word.removeprefix("--").partition("=")[::2] for word in sys.argv[1:])
log = pathlib.Path(flags["log"])
def note(event):
    with log.open("a") as file:
        file.write(json.dumps([event, flags["name"], time.time()]) + "\\n")
def stop(*_):
    note("stopped")
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
note("began")
end = time.time() + float(flags.get("seconds", 0))
while time.time() < end and log.read_text().count("began") < int(flags.get("until", 1000)):
    time.sleep(0.01)
if "fail" in flags and not os.path.exists(flags["fail"]):
    sys.exit("error: there is no " + flags["fail"])
print("{ is no JSON")
print(json.dumps({"loss": len(flags["name"])}))
note("ended")
"""


@pytest.fixture
def make(tmp_path):
    """make(name, ..) is a Job that notes in `events` when it begins and ends."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def job(name, needs=(), **flags):
        return Job(name, str(script), {"name": name, "log": str(tmp_path / "log")} | flags, needs)

    return job


def events(tmp_path):
    log = tmp_path / "log"
    return [json.loads(line)[:2] for line in log.read_text().splitlines()] if log.exists() else []


def test_flags_are_written_as_absl_reads_them():
    values = {"mem_len": 16, "same_length": False, "untie_r": True, "cutoffs": (1, 2), "rate": 1e-3}
    assert as_flags(values) == ["--mem_len=16", "--nosame_length", "--untie_r", "--cutoffs=1,2", "--rate=0.001"]


def test_so_many_run_at_a_time_and_what_is_needed_comes_before(tmp_path, make):
    # Each waits until another one has begun, so that two overlap however slow the machine is.
    jobs = [make("last", ("a", "b")), *(make(name, seconds=60, until=2) for name in "abc")]
    run_jobs(jobs, tmp_path / "jobs", at_once=2)
    running, most = 0, 0
    for event, _ in events(tmp_path):
        running += {"began": 1, "ended": -1}[event]
        most = max(most, running)
    assert most == 2
    found = events(tmp_path)
    assert found.index(["began", "last"]) > max(found.index(["ended", "a"]), found.index(["ended", "b"]))
    record = read_record(tmp_path / "jobs", "last")
    assert record["finished"] and record["lines"] == [{"loss": 4}]
    assert record["wall_seconds"] > 0 and record["cpu_seconds"] > 0 and record["machine"] and record["commit"]


def test_what_failed_is_named_and_run_again_and_what_ended_is_not(tmp_path, make):
    jobs = [make("a", fail=str(tmp_path / "file")), make("b", ("a",)), make("c")]
    with pytest.raises(InputError, match=r"1 job failed.*a \(error: there is no .*file\)"):
        run_jobs(jobs, tmp_path / "jobs")
    assert [name for event, name in events(tmp_path) if event == "ended"] == ["c"]
    before = read_record(tmp_path / "jobs", "a")
    (tmp_path / "file").touch()
    run_jobs(jobs, tmp_path / "jobs")
    assert [name for event, name in events(tmp_path) if event == "began"] == ["a", "c", "a", "b"]
    assert read_record(tmp_path / "jobs", "a")["cpu_seconds"] > before["cpu_seconds"]
    run_jobs(jobs, tmp_path / "jobs")
    assert len(events(tmp_path)) == 7


def test_an_interruption_reaches_the_commands_and_they_are_started_again(tmp_path, make, monkeypatch):
    jobs, sleep = [make("a", seconds=60), make("b")], time.sleep

    def interrupted(seconds):
        sleep(seconds)
        if events(tmp_path) and not interrupted.done:
            interrupted.done = True
            raise KeyboardInterrupt

    interrupted.done = False
    monkeypatch.setattr(time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, tmp_path / "jobs")
    assert events(tmp_path) == [["began", "a"], ["stopped", "a"]]
    assert not read_record(tmp_path / "jobs", "a")["finished"] and not read_record(tmp_path / "jobs", "b")


def test_a_changed_table_is_refused_before_anything_runs(tmp_path, make):
    run_jobs([make("a", size=1)], tmp_path / "jobs")
    with pytest.raises(InputError, match=r"a\.json: this job was run with --size=1, and the study now has --size=2"):
        run_jobs([make("b"), make("a", size=2)], tmp_path / "jobs")
    with pytest.raises(InputError, match="1 job needs others that have not ended: c"):
        run_jobs([make("b", ("c",))], tmp_path / "jobs")
    assert [name for _, name in events(tmp_path)] == ["a", "a"]


@pytest.mark.parametrize("study", [recall, ablations], ids=lambda study: study.__name__)
@pytest.mark.parametrize("size", ["small", "paper"])
def test_each_variant_of_a_study_is_a_run_that_can_start(study, size):
    scale = study.SCALES[size]
    preset = families.presets()[scale.preset].config
    seen = set()
    for variant in scale.variants:
        groups = collections.defaultdict(dict)
        for name, value in scale.flags(variant).items():
            if name != "preset":
                group, field = setting(preset, name)
                groups[group][field] = value
        config = preset.replace(**groups)
        assert config.eval.tgt_len == config.data.tgt_len and config.eval.mem_len == config.model.mem_len
        seen.add(config)
    assert len(seen) == len(scale.variants)
    assert set(study.TITLES) == set(scale.variants)


def setting(config, flag):
    """(group, field) of a flag of scripts/train.py."""
    groups = config.groups()
    for prefix, names in (("", [name for name in groups if name != "eval"]), ("eval_", ["eval"])):
        field = flag.removeprefix(prefix)
        for group in names if flag.startswith(prefix) else ():
            if field in groups[group].__dataclass_fields__:
                return group, field
    raise AssertionError(f"--{flag} is not a setting")


@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.parametrize("variant", ["xl", "shaw", "vaswani_half", "alrfou_half", "no_recurrence_long"])
def test_the_recipes_lower_for_a_tpu(variant):
    from aot import steps

    scale = ablations.SCALES["paper"]
    config = families.presets()[scale.preset].config
    groups = collections.defaultdict(dict)
    for name, value in (scale.flags(variant) | {"n_layer": 2}).items():
        if name != "preset":
            group, field = setting(config, name)
            groups[group][field] = value
    step = steps.train(config.replace(**groups), 2)
    assert any("layer_1" in name for name in step.parameters)


def test_each_answer_is_the_value_given_and_stands_once():
    words = key_values.key_values(20_000, keys=6, values=4, longest=64, rng=random.Random(0))
    assert len(words) == 20_000
    given, distances = {}, []
    for place, word in enumerate(words):
        if len(word) == 2:
            assert word[0] not in given, "given again before it was asked for"
            given[word[0]] = place
        elif word.isalpha():
            start = given.pop(word.lower())
            assert words[place + 1] == words[start][1]
            distances.append((place + 1, place - start))
    assert distances == list(key_values.questions(words))
    lengths = [distance for _, distance in distances]
    assert min(lengths) == 1 and max(lengths) == 64
    doublings = collections.Counter(int(math.log2(length)) for length in lengths)
    assert all(doublings[power] > len(lengths) / 20 for power in range(6))
    values = collections.Counter(words[place] for place, _ in distances)
    assert all(abs(values[str(value)] / len(distances) - 1 / 4) < 0.03 for value in range(4))


def test_accuracy_is_the_mean_probability_of_the_answers_at_a_distance(tmp_path):
    words = ["a1", "b2", "A", "1", ".", "B", "2", "C", "3"]  # distances 2 and 4; c was given before the text
    chances = [0.9] * 3 + [0.5] + [0.9] * 2 + [0.25] + [0.9] * 2
    lines = [f"0\t{math.log(chance)}\t{word}" for word, chance in zip(words, chances, strict=True)]
    path = tmp_path / "tokens.tsv"
    path.write_text("\n".join(["id\tlog_prob\ttoken", *lines]) + "\n")
    assert recall.accuracy(path, [2, 8]) == pytest.approx([0.5, 0.25])
    assert recall.accuracy(path, [8]) == pytest.approx([0.375])


def test_repetition_is_counted():
    assert list(samples.statistics_of(["a", "b", "a", "b"])) == pytest.approx([2 / 4, 2 / 3, 1, 1, 1])
    assert list(samples.statistics_of(["a", "b"] * 10))[-1] == pytest.approx(1 - 2 / 13)


def test_parts_are_whole_lines_and_lose_nothing():
    text = "".join(f"line {i}\n" for i in range(100))
    parts = samples.cut(text, 4)
    assert "".join(parts) == text and len(parts) == 4
    assert all(part.startswith("line") and 150 < len(part) < 250 for part in parts)


def test_a_fence_holds_what_has_fences():
    assert samples.fenced("a\n```\nb\n").splitlines() == ["````text", "a", "```", "b", "````"]
