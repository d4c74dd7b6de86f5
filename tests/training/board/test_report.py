import dataclasses
import json
import math
import re
import time

import numpy as np
import pytest
import tensorflow as tf
from reference import SMALL
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as custom_scalars
from tensorboard.plugins.hparams import metadata as hparams

from txl_tf.errors import InputError
from txl_tf.models.transformer_xl.config import TransformerXLRunConfig
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.objectives import flops
from txl_tf.runs.parameters import parameter_table
from txl_tf.settings.run import DataConfig, TrainConfig
from txl_tf.training.board.report import LogWindow, Report, duration
from txl_tf.training.peak import accelerator_tflops
from txl_tf.training.profiler import Profiler

CONFIG = TransformerXLRunConfig(SMALL, DataConfig(batch_size=2, tgt_len=4), TrainConfig(train_steps=12))


def events(folder):
    """What TensorBoard reads in a folder."""
    return EventAccumulator(str(folder)).Reload()


def curve(folder, tag):
    return [(event.step, tf.make_ndarray(event.tensor_proto).item()) for event in events(folder).Tensors(tag)]


def write(metrics, step, loss, **more):
    rest = {"lr": 0.1, "grad_norm": 1.0, "skipped": 0.0, "tokens_per_sec": 100.0, "epoch": step / 10}
    metrics.training(step, LogWindow(loss, **rest | more), lambda: (8.0, 0.01))


def test_the_terminal_does_not_wait_for_the_norms(tmp_path, capsys):
    def norms():
        assert "step       3/12" in capsys.readouterr().out
        return 8.0, 0.01

    metrics = Report(str(tmp_path), "byte", 0, CONFIG)
    metrics.training(3, LogWindow(5.0, lr=0.1, grad_norm=1.0, skipped=0.0, tokens_per_sec=100.0, epoch=0.3), norms)
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert (line["param_norm"], line["update_ratio"]) == (8.0, 0.01)


def test_curves_of_a_resumed_run_do_not_go_back(tmp_path):
    """A run that saved at step 4 was killed after it had logged step 6; the same step is logged again."""
    killed = Report(str(tmp_path), "byte", 0, CONFIG)
    for step, loss in ((3, 5.0), (6, 4.0)):
        write(killed, step, loss)
        killed.evaluation(step, {"loss": loss + 1})
    time.sleep(1.1)  # event files are named by the second
    resumed = Report(str(tmp_path), "byte", 4, CONFIG)
    for step, loss in ((6, 4.5), (9, 3.5)):
        write(resumed, step, loss)
        resumed.evaluation(step, {"loss": loss + 1})

    board = tmp_path / "tensorboard"
    assert curve(board, "loss/nats_per_token") == [(3, 5.0), (6, 4.5), (9, 3.5)]
    assert curve(board, "loss/nats_per_token_valid") == [(3, 6.0), (6, 5.5), (9, 4.5)]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in lines] == [(3, 5.0), (6, 4.5), (9, 3.5)]


def test_every_curve_has_its_value(tmp_path, capsys):
    metrics = Report(str(tmp_path), "byte", 0, CONFIG, peak_tflops=1e-6)
    write(metrics, 4, loss=2.0)
    train = tmp_path / "tensorboard"
    mfu = 100 / 8 * flops.transformer_xl(SMALL, 2, 4) / 1e6  # 12.5 steps a second, of a peak of 1e6 operations
    values = {
        "loss/nats_per_token": 2.0,
        "loss/bpc": 2 / math.log(2),
        "optimizer/lr": 0.1,
        "optimizer/grad_norm": 1.0,
        "optimizer/param_norm": 8.0,
        "optimizer/update_ratio": 0.01,
        "optimizer/skipped": 0.0,
        "speed/tokens_per_sec": 100.0,
        "speed/mfu": mfu,
        "speed/epoch": 0.4,
    }
    assert set(events(train).Tags()["tensors"]) == set(values)
    for tag, value in values.items():
        np.testing.assert_allclose(curve(train, tag), [(4, value)], rtol=1e-4)
    line = capsys.readouterr().out
    assert f"MFU {100 * mfu:.1f} %" in line and " left" not in line  # the first window is mostly compilation


def test_the_time_left_begins_with_the_second_window(tmp_path, capsys):
    report = Report(str(tmp_path), "byte", 4, CONFIG)
    for step in (6, 8):
        write(report, step, loss=2.0)
    first, second = capsys.readouterr().out.splitlines()
    left = (CONFIG.train.train_steps - 8) * 8 / 100  # seconds, for steps of 8 tokens
    assert " left" not in first and second.endswith(f"| {duration(left)} left")


def test_without_a_peak_there_is_no_mfu(tmp_path, capsys):
    write(Report(str(tmp_path), "word", 0, CONFIG), 4, loss=2.0)
    tags = events(tmp_path / "tensorboard").Tags()["tensors"]
    assert "speed/mfu" not in tags and "loss/ppl" in tags
    assert "MFU" not in capsys.readouterr().out


def test_a_window_without_a_good_step_leaves_a_gap(tmp_path):
    write(Report(str(tmp_path), "byte", 0, CONFIG), 4, loss=math.nan)
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["loss"] is None
    tags = events(tmp_path / "tensorboard").Tags()["tensors"]
    assert "loss/bpc" not in tags and "optimizer/lr" in tags


def test_a_run_is_described_once(tmp_path):
    model = TransformerXL(SMALL)
    Report(str(tmp_path), "byte", 0, CONFIG).write_settings(model, leave_out={"dropatt"})
    Report(str(tmp_path), "byte", 4, CONFIG).write_settings(model, leave_out={"dropatt"})
    read = events(tmp_path / "tensorboard")
    (parameters,) = read.Tensors("parameters")
    assert tf.make_ndarray(parameters.tensor_proto).item().decode() == parameter_table(model)
    (config,) = read.Tensors("config")
    assert b"| d_inner | 12 |" in tf.make_ndarray(config.tensor_proto).item()
    plugin_data = read.SummaryMetadata(hparams.SESSION_START_INFO_TAG).plugin_data.content
    session = hparams.parse_session_start_info_plugin_data(plugin_data)
    assert session.hparams["d_inner"].number_value == 12 and session.hparams["cutoffs"].string_value == ""
    assert session.group_name == f"{tmp_path.name} in {tmp_path.parent}" and "dropatt" not in session.hparams
    assert session.hparams["family"].string_value == "transformer_xl"


def test_every_curve_is_in_the_layout(tmp_path):
    """Each in one chart at least, and each chart of what evaluations report has a curve."""
    half = dataclasses.replace(CONFIG, model=dataclasses.replace(SMALL, dtype="mixed_float16"))
    metrics = Report(str(tmp_path), "byte", 0, half, peak_tflops=1.0)
    metrics.write_settings(TransformerXL(SMALL), leave_out=set())
    write(metrics, 4, loss=2.0, scaling={"loss_scale": 2.0, "overflows": 1})
    parts = {"rank": {"bins": ["0", "1"], "loss": [1.0, 2.0]}}
    beside = {"most_frequent_class": 0.4}
    metrics.evaluation(4, {"loss": 3.0, "metrics": {"accuracy": 0.5}, "baselines": beside, "loss_by": parts})
    layouts = []
    for event in events(tmp_path / "tensorboard").Tensors(custom_scalars.CONFIG_SUMMARY_TAG):
        layouts.append(layout_pb2.Layout.FromString(tf.make_ndarray(event.tensor_proto).item()))
    assert len(layouts) == 2  # of the start, and of what the first evaluation reported
    found = {chart.title: chart.multiline.tag for part in layouts[1].category for chart in part.chart}
    curves = ("loss/", "loss_by_", "metrics/", "optimizer/", "speed/")
    every = events(tmp_path / "tensorboard").Tags()["tensors"]
    known = [tag for tag in every if tag.startswith(curves) and tag != "loss/by_rank"]
    assert {"loss/bpc", "loss/bpc_valid"} <= set(known) and not any(
        path.is_dir() for path in (tmp_path / "tensorboard").iterdir()
    )
    for name in ("metrics/accuracy", "metrics/most_frequent_class"):  # in one chart
        assert name in known and re.match(found["metrics on dev"][0], name)
    assert all(any(re.match(tags[0], tag) for tags in found.values()) for tag in known)
    assert all(any(re.match(tags[0], tag) for tag in known) for tags in found.values())
    assert found["loss on valid by rank"] == ["loss_by_rank/"] and found["learning rate"] == ["optimizer/lr$"]
    assert {chart.title for part in layouts[0].category for chart in part.chart} < set(found)


def test_the_parameter_table_adds_up():
    model = TransformerXL(SMALL)
    rows = [[cell.strip(" *|") for cell in line.split(" | ")] for line in parameter_table(model).splitlines()[2:]]
    counts = {row[0]: int(row[-2].replace(",", "")) for row in rows}
    assert counts.pop("total") == model.count_params() == sum(counts.values())
    assert counts["layer/feed_forward/inner/kernel"] == 2 * 8 * 12


@pytest.mark.parametrize("steps", [(5,), (5, 5), (8, 3), (-1, 4), (1, 2, 3), (5, 13)])
def test_profile_steps_that_make_no_profile_are_refused(steps):
    with pytest.raises(
        InputError, match=r"profile_steps=[-,\d]+ must be (two numbers of updates, a,b with 0 <= a < b|at least 0)"
    ):
        TrainConfig(train_steps=12, profile_steps=steps)


def test_a_profile_is_written_between_its_steps(tmp_path):
    profiler, found = Profiler(str(tmp_path), (4, 8)), lambda: list(tmp_path.glob("plugins/profile/*/*.xplane.pb"))
    running = []
    for step in (0, 4, 6, 8, 12):
        profiler.at(step)
        running.append(profiler.running)
        assert bool(found()) == (step >= 8)
    assert running == [False, True, True, False, False]
    assert found()[0].stat().st_size > 0
    Profiler(str(tmp_path), ()).at(0)  # nothing to do


def test_peaks_are_of_all_chips_of_a_slice():
    assert accelerator_tflops("v5litepod-4") == 4 * 197
    assert accelerator_tflops("v3-8") == 4 * 123  # 8 cores are 4 chips
    assert accelerator_tflops("") is None and accelerator_tflops("v9-8") is None


def test_durations():
    texts = [duration(seconds) for seconds in (7.4, 60, 3599.6, 86_399, 90_000)]
    assert texts == ["7 s", "1 min 00 s", "1 h 00 min", "23 h 59 min", "1 d 01 h"]


def test_what_float32_cannot_hold_is_in_the_log_and_no_point_of_a_curve(tmp_path):
    metrics = Report(str(tmp_path), "byte", 0, CONFIG)
    rest = {"lr": 0.1, "skipped": 0.0, "tokens_per_sec": 100.0, "epoch": 0.3}
    for step, norm in ((3, 1e300), (6, 2.0)):
        metrics.training(step, LogWindow(5.0, grad_norm=norm, **rest), lambda: (8.0, 0.01))
    logged = [json.loads(line)["grad_norm"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert logged == [1e300, 2.0]
    assert curve(tmp_path / "tensorboard", "optimizer/grad_norm") == [(6, 2.0)]
