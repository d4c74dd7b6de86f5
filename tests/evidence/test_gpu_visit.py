"""evidence/bench/gpu_visit.py, tried on the CPU with tiny models, and the tables of its results."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "evidence" / "bench" / "gpu_visit.py"
RUN = {"tokens_per_sec": 200.0, "first_loop_seconds": 30.0, "flops_per_token": 5e10}
RESULTS = [
    {"what": "products of matrices", "commit": "new", "device": "CARD", "tensorflow": "2.21.0"}
    | {"tflops": {"float32": 100.0, "bfloat16": 20.0, "float16": 20.0}},
    {"what": "enwik8_base bfloat16", "commit": "old", "error": "no such flag"},
    {"what": "enwik8_base bfloat16", "commit": "old", **RUN, "tokens_per_sec": 100.0},
    {"what": "enwik8_base bfloat16", "commit": "new", **RUN},
    {"what": "generation of one text", "commit": "old", "ms_per_token": 1.5},
    {"what": "generation of one text", "commit": "new", "ms_per_token": 0.5},
    {"what": "XLNet filling", "commit": "new", "error": "it broke"},
    {"what": "XLNet prediction", "commit": "new", "examples_per_sec": 8.0, "probabilities": [0.5, 0.8]},
    {"what": "XLNet pretraining beside Hugging Face", "commit": "new"}
    | {"beside": {"train": {"ours": 2000, "huggingface": 500}}},
    {"what": "agreement: prediction on the CPU", "commit": "new", "probabilities": [0.4, 0.8]},
    {"what": "agreement: on the CPU", "commit": "new", **RUN, "losses": [2.0, 4.0], "grad_norms": [1.0, 1.0]},
    {"what": "agreement: bfloat16", "commit": "new", **RUN, "losses": [2.0, 4.1], "grad_norms": [1.5, 1.0]},
]


def test_the_page_has_speeds_shares_agreement_and_what_failed():
    spec = importlib.util.spec_from_file_location("visit_tables", SCRIPT.parent / "visit" / "tables.py")
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    made = tables.page(RESULTS, ["new", "old"])
    for line in (
        "CARD, TensorFlow 2.21.0; products of matrices, TFLOP/s: float32 100, bfloat16 20, float16 20.",
        "| enwik8_base bfloat16 | 200 tokens/s | 100 tokens/s | 2.00 | 50.0% |",
        "| generation of one text | 0.5 ms a token | 1.5 ms a token | 3.00 |  |",
        "| XLNet prediction | 8 texts/s |  |  |  |",
        "| enwik8_base bfloat16 | 30.0 | 30.0 |",
        "XLNet pretraining beside Hugging Face, train, tokens/s: ours 2,000, huggingface 500",
        "| bfloat16 | 2.5e-02 | 5.0e-01 |  |",
        "| XLNet prediction |  |  | 2.5e-01 |",
        "Failed: XLNet filling, new: it broke",
    ):
        assert line in made.splitlines()
    assert "no such flag" not in made
    assert tables.page([], ["new"]) == "# A visit to a GPU\n"


def visit(folder, *flags):
    command = [sys.executable, SCRIPT, "--small", f"--dir={folder}", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    results = folder / "results.jsonl"
    return done, [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


@pytest.mark.slow
def test_a_visit_goes_on_where_it_stopped(tmp_path):
    done, none = visit(tmp_path, "--minutes=0")
    assert done.returncode == 1 and not none
    assert done.stderr == "error: 0 minutes are over: run the same command again for the rest\n"
    done, first = visit(tmp_path, "--only=^enwik8_base bfloat16$|^generation")
    assert done.returncode == 0, done.stderr
    assert [line["what"] for line in first] == ["enwik8_base bfloat16", "generation of one text"]
    assert first[0]["first_loop_seconds"] > 0 and first[0]["tokens_per_sec"] > 0 and len(first[0]["losses"]) == 5
    assert "ms_per_token" in first[1]
    done, more = visit(tmp_path, "--only=^products|^enwik8_base bfloat16$")
    assert (
        done.returncode == 0 and more[:2] == first and [line["what"] for line in more[2:]] == ["products of matrices"]
    )
    assert "| generation of one text | " in (tmp_path / "page.md").read_text()
