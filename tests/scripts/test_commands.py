"""The README's commands, run as a user would run them, and what the scripts say to bad input."""

import json
import os
import pathlib
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys

import numpy as np
import processes
import pytest
from small_run import TINY

from txl_tf.devices.distribute import has_xla

ROOT = pathlib.Path(__file__).parents[2]
OLD = ROOT / "tests" / "model_dir_ce09e14"
SHORT = [*TINY, *shlex.split("--train_steps=6 --warmup_steps=1 --log_steps=2 --save_steps=4 --eval_steps=6")]


def run(*command, check=True):
    done = processes.run(command, cwd=ROOT)
    if check:
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done


def readme_commands():
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip() and not line.startswith("#")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the README's commands are run: a corpus of two small files stands in for the one to download."""
    folder = tmp_path_factory.mktemp("commands")
    text = "".join(f"line {i} of a text that says the same again and again\n" for i in range(400))
    for name in ("a.txt", "b.txt", "c.txt"):
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def results(folder):
    """The output of each command of the README's "A real run", by script."""
    results = {}
    for command in readme_commands():
        if command[:1] != ["python"] or not command[1].startswith("scripts/") or "--peer" in " ".join(command):
            continue
        script, flags = pathlib.Path(command[1]).stem, command[2:]
        if script in results:
            continue
        flags = [re.sub(r"=(data|runs|exports)/", rf"={folder}/\1/", flag) for flag in flags]
        if script == "prepare_data":
            flags = [re.sub("^--dataset=.*", "--dataset=text", flag) for flag in flags] + [f"--source={folder}/*.txt"]
        flags += SHORT if script == "train" else []
        results[script] = run(command[1], *flags)
    return results


def test_every_command_of_the_readme_is_there():
    commands = readme_commands()
    targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert commands
    for command in commands:
        if command[0] == "make":
            assert command[1] in targets
        elif command[0] == "txl":
            assert command[1] in {"serve", *(path.stem for path in (ROOT / "scripts").glob("*.py"))}, command
        elif command[1] != "-m":
            assert (ROOT / command[1]).exists(), command


def test_the_readmes_commands_run(results):
    assert {"prepare_data", "train", "evaluate", "generate", "export_savedmodel"} <= set(results)


def test_training_wrote_what_the_contract_says(results, folder):
    (model_dir,) = (folder / "runs").iterdir()
    lines = [json.loads(line) for line in (model_dir / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4, 6]
    assert {"step", "loss", "lr", "grad_norm", "tokens_per_sec", "epoch"} <= set(lines[0])
    assert (model_dir / "config.json").exists() and list(model_dir.glob("ckpt-6.*"))
    assert list((model_dir / "tensorboard").iterdir())


def test_evaluation_ends_with_the_contracts_json_line(results):
    line = json.loads(results["evaluate"].stdout.splitlines()[-1])
    wanted = (
        "split loss ppl bpc bits_per_byte tokens tokens_dropped tgt_len mem_len clamp_len same_length mem_init step "
        "tokens_per_sec"
    )
    assert set(wanted.split()) <= set(line)
    assert (line["split"], line["step"], line["tokens_dropped"]) == ("test", 6, 0)


def test_generation_begins_with_the_prompt(results):
    assert results["generate"].stdout.startswith("The history of ")
    assert len(results["generate"].stdout) > 100


@pytest.fixture
def model(results, folder):
    """--model_dir and --data_dir of what was trained."""
    (model_dir,), (data_dir,) = (folder / "runs").iterdir(), (folder / "data").iterdir()
    return f"--model_dir={model_dir}", f"--data_dir={data_dir}"


@pytest.mark.slow
def test_nothing_that_libraries_write_is_shown_unless_it_is_asked_for(results, model, folder):
    """Also in a process that loads TensorFlow itself."""
    for script, done in results.items():
        assert not done.stderr, script
    (folder / "line.txt").write_text("line 1 of\n")
    command = [sys.executable, "scripts/score.py", model[0], f"--input={folder}/line.txt"]
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    quiet, verbose = (
        subprocess.run([*command, *more], cwd=ROOT, env=environment, capture_output=True, text=True)
        for more in ([], ["-v=1"])
    )
    assert quiet.stderr == "" and json.loads(quiet.stdout)["text"] == "line 1 of"
    # oneDNN speaks only on a CPU with more than AVX2.
    assert re.search(r"oneDNN|absl::InitializeLog", verbose.stderr) and verbose.stdout == quiet.stdout


def test_samples_and_the_best_of_a_beam_search_are_told_apart(model):
    flags = ["scripts/generate.py", model[0], "--prompt=line", "--max_tokens=8", "--num_samples=2"]
    assert re.findall("^--- .*", run(*flags, "--seed=3").stdout, re.MULTILINE) == [
        "--- sample 1, seed 3",
        "--- sample 2, seed 4",
    ]
    totals = re.findall("^--- log-probability (.*)\nline", run(*flags, "--beam_size=3").stdout, re.MULTILINE)
    assert len(totals) == 2 and float(totals[0]) >= float(totals[1])


def test_the_lines_of_a_file_are_scored(model, folder):
    (folder / "lines.txt").write_text("line 1 of\n\nno line\n")
    scores = [
        json.loads(line)
        for line in run("scripts/score.py", model[0], f"--input={folder}/lines.txt", "--per_token").stdout.splitlines()
    ]
    assert [score["text"] for score in scores] == ["line 1 of", "", "no line"]
    assert [score["tokens"] for score in scores] == [len(score["ids"]) for score in scores] == [9, 0, 7]
    assert all(score["total"] == pytest.approx(sum(score["log_probs"]), abs=1e-4) for score in scores)


def test_a_lines_end_and_a_byte_order_mark_are_no_part_of_the_line(folder):
    text = "line 1 of\n\nno line\n"
    (folder / "unix.txt").write_text(text)
    (folder / "windows.txt").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    unix, windows = (
        run("scripts/score.py", f"--model_dir={OLD}/plain", f"--input={folder}/{name}.txt").stdout
        for name in ("unix", "windows")
    )
    assert windows == unix and len(unix.splitlines()) == 3


def test_evaluation_says_when_a_lane_is_shorter_than_the_memory(folder):
    shutil.copytree(OLD / "plain", folder / "lanes")  # evaluation writes its card
    flags = [f"--model_dir={folder}/lanes", f"--data_dir={OLD}/corpus", "--nojit_compile"]
    said = run("scripts/evaluate.py", *flags, "--mem_len=3000").stderr
    assert re.fullmatch(r"the \d+ lanes of \d+ tokens are shorter than the memory of 3,000: .* smaller .*\n", said)
    assert run("scripts/evaluate.py", *flags, "--mem_len=8").stderr == ""


def test_any_seed_shuffles(folder):
    flags = ["--dataset=text", f"--source={folder}/a.txt", "--vocab=words", "--passes=2", "--seed=-1"]
    assert "2 passes" in run("scripts/prepare_data.py", *flags, f"--data_dir={folder}/shuffled").stdout


def test_what_is_set_for_keras_and_python_makes_no_difference(tmp_path):
    (tmp_path / "keras.json").write_text("[]")
    environment = {**os.environ, "KERAS_BACKEND": "jax", "KERAS_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    shutil.copytree(OLD / "plain", tmp_path / "run")  # it gets a card
    level = "-OO" if has_xla() else "-O"  # a TPU's wheel, TensorFlow 2.20, reads its own docstrings
    flags = [level, "-m", "txl_tf", "describe_model", f"--model_dir={tmp_path}/run"]
    done = subprocess.run([sys.executable, *flags], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and "Transformer-XL" in done.stdout


def test_a_reader_that_is_gone_gets_one_line(tmp_path):
    """As `| head`."""
    shutil.copytree(OLD / "plain", tmp_path / "run")  # it gets a card
    command = ["scripts/describe_model.py", f"--model_dir={tmp_path}/run"]
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as output, open(tmp_path / "said", "w+") as said:
        assert processes.Popen(command, stdout=output, stderr=said, cwd=ROOT).wait(60) == 1
        said.seek(0)
        assert said.read() == "error: standard output was closed: the rest of the results is lost\n"


def test_scores_without_same_length_are_others_once_a_text_is_longer_than_memory(model, folder):
    (folder / "long.txt").write_text("line 1 of a text that says the same again and again\n" * 2)
    command = ["scripts/score.py", model[0], f"--input={folder}/long.txt", "--per_token"]
    off, on = (
        np.array([json.loads(line)["log_probs"] for line in run(*command, flag).stdout.splitlines()])
        for flag in ("--nosame_length", "--same_length")
    )
    assert off.shape == on.shape == (2, 51) and np.abs(off - on).max() > 1e-6


def test_plain_formulas_give_the_same_scores_and_are_no_usual_flag(model, folder):
    (folder / "plain.txt").write_text("line 1 of a text\n")
    command = ["scripts/score.py", model[0], f"--input={folder}/plain.txt"]
    fast, plain = (json.loads(run(*command, *flags).stdout)["total"] for flags in ((), ("--ops=plain",)))
    np.testing.assert_allclose(plain, fast, rtol=1e-5)
    assert "--ops" not in run("scripts/score.py", "--help").stdout


def test_every_scored_token_is_written(model, folder):
    flags = ["--checkpoint=best", "--split=valid", f"--per_token_out={folder}/new/tokens.tsv", "--nojit_compile"]
    out = run("scripts/evaluate.py", *model, *flags)
    result = json.loads(out.stdout.splitlines()[-1])
    head, *rows = (folder / "new" / "tokens.tsv").read_text().splitlines()
    assert (head, len(rows)) == ("id\tlog_prob\ttoken", result["tokens"])
    total = sum(float(row.split("\t")[1]) for row in rows)
    assert -total / len(rows) == pytest.approx(result["loss"], abs=1e-4)


@pytest.mark.slow
def test_results_that_cannot_be_written_are_an_error(model, folder):
    """/dev/full is a disk without space. A file that another command wrote is not touched."""
    (folder / "short.txt").write_text("line 1 of\n")
    scored = ["scripts/score.py", model[0], f"--input={folder}/short.txt"]
    evaluated = ["scripts/evaluate.py", *model, "--split=valid", "--nojit_compile"]
    for command in ([*scored, "--output=/dev/full"], [*evaluated, "--per_token_out=/dev/full"]):
        done = run(*command, check=False)
        assert done.returncode == 1 and "o space left on device" in done.stderr.splitlines()[-1], done.stderr
        assert "Traceback" not in done.stderr
    with open("/dev/full", "w") as full, open(folder / "said.txt", "w+") as said:
        process = processes.Popen(scored, stdout=full, stderr=said, cwd=ROOT)
        assert process.wait(300) == 1
        said.seek(0)
        assert re.fullmatch(r"error: .*No space left on device\n", said.read())
    done = run(*scored, f"--output={folder}/short.txt", check=False)
    assert done.returncode == 1 and "short.txt exists and would be overwritten: remove it, or give" in done.stderr
    assert (folder / "short.txt").read_text() == "line 1 of\n"


def test_a_checkpoint_is_not_exported_over_a_run(model):
    (model_dir,) = (pathlib.Path(flag.partition("=")[2]) for flag in model[:1])
    before = (model_dir / "config.json").read_bytes()
    for flag in ("export_checkpoint", "export_savedmodel"):
        done = run(f"scripts/{flag}.py", f"--model_dir={model_dir}", f"--export_dir={model_dir}", check=False)
        assert done.returncode == 1 and f"{model_dir} is not empty: give a new --export_dir" in done.stderr
    assert (model_dir / "config.json").read_bytes() == before


def test_memory_that_no_machine_has(model, folder):
    """The message comes before the memory is asked for, and names what needs it, with size and settings."""
    short = f"{folder}/short.txt"
    pathlib.Path(short).write_text("line 1 of\n")
    train = ["scripts/train.py", "--preset=enwik8_base", model[1], f"--model_dir={folder}/large", *SHORT]
    for command, match in (
        ([*train, "--d_inner=2000000000"], r"for weights, gradients and moments \(n_layer, d_model, d_inner"),
        ([*train, "--mem_len=2000000000"], r"for mems \(batch_size, mem_len, d_model, n_layer\)"),
        (["scripts/evaluate.py", *model, "--mem_len=2000000000"], "for keys and values of a text"),
        (["scripts/score.py", model[0], f"--input={short}", "--mem_len=2000000000"], "for keys and values of a text"),
    ):
        done = run(*command, check=False)
        assert done.returncode == 1, done.stderr
        assert re.search(r"error: this needs at least [\d,.]+ GB of memory, and there are .* GB.*" + match, done.stderr)
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_effective_context_lengths_of_a_group(model):
    (model_dir,) = (flag.partition("=")[2] for flag in model[:1])
    flags = [f"--model_dirs={model_dir},{model_dir}", model[1], "--context_lengths=4,8,12", "--positions=30"]
    lines = [json.loads(line) for line in run("scripts/recl.py", *flags, "--top_r=0.5,1").stdout.splitlines()]
    assert [line["top_r"] for line in lines] == [0.5, 0.5, 1.0, 1.0]
    one, other = lines[:2]
    assert one == other and one["recl"] in (4, 8, 12) and len(one["gains"]) == 2
    # With r = 1 all positions count: the first gain is that of the mean losses, if longer contexts never hurt.
    assert len(one["losses"]) == 3 and lines[2]["losses"] == one["losses"]
    assert lines[2]["gains"][0] >= 1 - one["losses"][1] / one["losses"][0] - 1e-4


@pytest.mark.slow
def test_training_stops_at_a_signal_and_started_again_continues(results, folder):
    (data_dir,) = (folder / "data").iterdir()
    flags = ["--preset=enwik8_base", f"--data_dir={data_dir}", f"--model_dir={folder}/stopped", *SHORT]
    command = ["scripts/train.py", *flags, "--train_steps=1000000", "--steps_per_loop=2"]
    lines = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with processes.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
            while not lines or not lines[-1].startswith("step "):
                lines.append(process.stdout.readline())
                assert lines[-1], "it ended by itself"
            process.send_signal(number)
            lines.extend(process.stdout)
        assert process.returncode == 128 + number
        assert lines[-1].startswith(f"{number.name}: saved at step ") and "same command continues" in lines[-1]
    (saved,) = [re.search("step ([0-9,]+);", line)[1] for line in lines if line.startswith("SIGTERM")]
    assert any(line.startswith(f"continuing at step {saved} of") for line in lines)


@pytest.mark.slow
def test_demo(tmp_path, monkeypatch, capfd):
    """`make demo` with a model that learns nothing: every step, the SavedModel in a fresh process, the summary."""
    flags = [flag for flag in SHORT if not flag.startswith("--eval_steps")]
    for own in (False, True):
        processes.server(own)  # which takes subprocess to start

    def start(command, stdout, **text):
        assert command[0] == sys.executable
        return processes.Popen(command[1:], stdout=stdout)

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(sys, "argv", ["demo.py", f"--dir={tmp_path}", *flags, "--eval_steps=0"])
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "demos"))  # as for `python scripts/demos/demo.py`
    runpy.run_path(str(ROOT / "scripts" / "demos" / "demo.py"), run_name="__main__")
    output, errors = capfd.readouterr()
    assert not errors
    summary = output.split("done in ")[1]
    assert "bpc over" in summary and "tensorboard.main" in summary and "SavedModel" in summary
    pieces = re.split(r"^\$ python .*\n", output, flags=re.MULTILINE)
    continued = [piece for piece in pieces if piece.startswith("def read_lines")]
    assert len(continued) == 2  # by generate, and by the SavedModel
    assert (tmp_path / "sample.txt").read_text().startswith("def read_lines")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train.py --preset=demo --data_dir=/nowhere --model_dir=/tmp/x", "/nowhere/manifest.json not found"),
        ("train.py --preset=demo --data_dir=/nowhere --model_dir=/tmp/x --n_layer=0", "/nowhere/manifest.json"),
        ("train.py --preset=dmo --data_dir=d --model_dir=m", "should be one of"),
        ("train.py --preset=demo --data_dir=d", "--model_dir"),
        ("train.py --preset=demo --data_dir=d --model_dir=m extra", "unexpected argument 'extra'"),
        ("train.py --preset=demo --data_dir=d --model_dir=m --n_layers=3", "Unknown command line flag 'n_layers'"),
        ("train.py --preset=demo --data_dir=d --model_dir=m --reuse_len=5", "Unknown command line flag 'reuse_len'"),
        ("train.py --preset=xlnet_demo --data_dir=d --model_dir=m --div_val=5", "Unknown command line flag 'div_val'"),
        ("evaluate.py --model_dir=/nowhere --data_dir=/nowhere", "/nowhere has no config.json"),
        ("generate.py --model_dir=/nowhere --prompt=a", "/nowhere has no config.json"),
        ("generate.py --model_dir=/nowhere --prompt=a --typical_p=nan", "typical_p=nan must be above 0 and at most 1"),
        ("generate.py --model_dir=/nowhere --prompt=a --top_k=1.5", "flag --top_k"),
        ("export_savedmodel.py --model_dir=/nowhere --export_dir=/tmp/x", "/nowhere has no config.json"),
        ("prepare_data.py --dataset=text --data_dir=/tmp/x", "needs --source"),
        ("continue_savedmodel.py --export_dir=/nowhere --prompt=a", "is not an exported model"),
        (
            "finetune.py --init=/nowhere --task=classification --train=a.tsv --dev=b.tsv --model_dir=/tmp/x",
            "--init=/nowhere has no config.json: give the directory of a pretrained model",
        ),
        (
            "finetune.py --init=a --preset=race --task=regression --train=b --dev=c --model_dir=d",
            "--preset=race is for multiple_choice, not for --task=regression",
        ),
        (
            "finetune.py --init=a --task=regression --balance_classes --train=b --dev=c --model_dir=d",
            "--balance_classes is not a setting of regression",
        ),
        ("train.py --preset=demo", "give --model_dir: directory for config"),
        ("train.py --preset=demo --model_dir=/tmp/x", "give --data_dir: the corpus, as"),
        ("train.py --model_dir=/nowhere", "/nowhere has no config.json, so there is no run to continue: give --preset"),
        ("evaluate.py --data_dir=/nowhere", "error: give --model_dir: what scripts/train.py wrote, or a name"),
        ("import_checkpoint.py", "error: give --format: whose checkpoint"),
        ("evidence/bench/eval_speed.py --attn_lens=many", "must be integers separated by commas"),
        ("evidence/bench/data.py", "give --data_dir to read a corpus"),
        ("evidence/bench/serve.py --export_dir=nothing", "nothing is not an exported model: "),
    ],
)
def test_bad_input_gets_one_line_and_no_traceback(command, message):
    script, *flags = command.split()
    done = run(script if "/" in script else f"scripts/{script}", *flags, check=False)
    assert done.returncode in (1, 2)
    assert message in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_verbose_shows_the_traceback():
    flags = ["--preset=demo", "--data_dir=/nowhere", "--model_dir=/tmp/x", "-v=1"]
    assert "Traceback" in run("scripts/train.py", *flags, check=False).stderr


def own_flags(text):
    """The flags that a help text lists, by heading, without those of absl."""
    found = {}
    for line in text.partition("every command:")[0].splitlines():
        if match := re.match(r"(\w+):$", line):
            heading = found.setdefault(match[1], [])
        elif match := re.match(r"  --(?:\[no\])?(\w+): ", line):
            heading.append(match[1])
    return found


def test_help_is_grouped_and_short_and_helpfull_has_every_flag():
    usual = own_flags(run("scripts/train.py", "--help").stdout)
    every = own_flags(run("scripts/train.py", "--helpfull").stdout)
    assert list(every) == ["flags", "data", "model", "optimizer", "schedule", "saving", "evaluation", "devices"]
    for heading, names in usual.items():
        assert set(names) <= set(every[heading])
    assert {"preset"} == set(usual["flags"]) and {"data_dir", "tgt_len"} <= set(usual["data"])
    assert "steps_per_loop" in usual["devices"] and "conventions" in set(every["model"]) - set(usual["model"])
    assert sum(map(len, usual.values())) < 50 and sum(map(len, every.values())) <= 73


@pytest.mark.parametrize("command", ["finetune", "predict"])
def test_help_has_the_flags_of_a_table(command):
    wanted = {"text_column", "text_b_column", "label_column", "label_separator", "sheet", "no_header", "encoding"}
    assert wanted <= set(own_flags(run(f"scripts/{command}.py", "--help").stdout)["data"])


def test_help_has_the_presets_values_once_one_is_given():
    text = re.sub(r"\s+", " ", run("scripts/train.py", "--preset=wt103_base", "--helpfull").stdout)
    assert "--n_layer: number of decoder layers, N [16]" in text and "--num_predict" not in text
    assert "else mem_len [official_pytorch]" in text
    assert "layers, N [16]" not in run("scripts/train.py", "--helpfull").stdout


def test_a_run_continues_by_its_model_dir_alone(model):
    done = run("scripts/train.py", model[0])
    assert done.stdout.startswith("finished at step 6 of 6")


def test_settings_of_presets_have_no_flag():
    for name in ("max_klen=3", "adam_epsilon=1e-6", "mem_init=empty", "mask_beta=1"):
        done = run("scripts/train.py", "--preset=demo", f"--{name}", check=False)
        assert done.stderr.startswith(f"error: Unknown command line flag '{name.partition('=')[0]}'")
        assert done.returncode == 1 and done.stderr.count("\n") == 1


def test_rare_settings_share_one_flag():
    for given in ("--lr_by_length", "--nolr_by_length", "--activation_penalty=1"):
        name = given.removeprefix("--").removeprefix("no").partition("=")[0]
        done = run("scripts/train.py", "--preset=demo", given, check=False)
        assert done.stderr == f"error: --{name} is not a separate flag: give --set={name}=VALUE\n"
    text = re.sub(r"\s+", " ", run("scripts/train.py", "--preset=ptb", "--helpfull").stdout)
    assert "lr_by_length: multiply the learning rate" in text and "mask_alpha" not in text


def test_help_may_be_read_in_part():
    """As by `head`: what reads the help is gone before it is written."""
    command = [sys.executable, "scripts/train.py", "--help"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(60) == 1
