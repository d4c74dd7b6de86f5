"""EleutherAI's lm_eval asks the server, as its model local-completions."""

import json

import numpy as np
import pytest
import server

lm_eval = pytest.importorskip("lm_eval", reason="make test-clients has it")

ROWS = [
    {"context": "def f(", "choices": ["x", "yes", "):"], "gold": 1, "document": "import os\nreturn yes\n" * 9},
    {"context": "while True", "choices": [":", " and", "."], "gold": 0, "document": "lambda x: x"},
]
TASKS = {
    "choose": [
        "output_type: multiple_choice",
        'doc_to_text: "{{context}}"',
        "doc_to_choice: choices",
        "doc_to_target: gold",
    ],
    "last_word": ["output_type: loglikelihood", 'doc_to_text: "{{context}}"', 'doc_to_target: "{{choices[gold]}}"'],
    "rolling": ["output_type: loglikelihood_rolling", 'doc_to_text: ""', 'doc_to_target: "{{document}}"'],
    "until": [
        "output_type: generate_until",
        'doc_to_text: "{{context}}"',
        'doc_to_target: "{{choices[gold]}}"',
        "generation_kwargs: {until: [';'], max_gen_toks: 12, temperature: 0}",
    ],
}
METRICS = {"choose": "acc", "last_word": "acc", "rolling": "bits_per_byte", "until": "exact_match"}


@pytest.fixture(scope="module")
def found(byte_export, tmp_path_factory):
    """found(**model_args) -> by task, each row's result."""
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "rows.json").write_text("\n".join(map(json.dumps, ROWS)))
    for name, lines in TASKS.items():
        head = [f"task: {name}", "dataset_path: json", f"dataset_kwargs: {{data_files: {{test: {folder}/rows.json}}}}"]
        target = ["target_delimiter: ''", "test_split: test", f"metric_list: [{{metric: {METRICS[name]}}}]"]
        (folder / f"{name}.yaml").write_text("\n".join([*head, *lines, *target]) + "\n")
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(folder), include_defaults=False)
    with server.running(byte_export) as address:

        def evaluate(**given):
            given = {"model": "model", "base_url": f"{address}/v1/completions", **given}
            results = lm_eval.simple_evaluate(
                "local-completions", given, list(TASKS), task_manager=manager, log_samples=True, bootstrap_iters=0
            )
            rows = {name: sorted(rows, key=lambda row: row["doc_id"]) for name, rows in results["samples"].items()}
            return {name: [row["filtered_resps"] for row in of_task] for name, of_task in rows.items()}

        yield evaluate


def log_prob(model, context, text):
    """The log-probability of a text after a context, and whether each of its tokens is the likeliest."""
    ids = np.frombuffer((context + text).encode(), np.uint8).astype(np.int32)
    hidden, _ = model.model(ids[None], reach=model.generator.decoder.reach)
    rates = model.model.log_prob(hidden).numpy()[0, len(context.encode()) - 1 : -1]
    chosen = ids[len(context.encode()) :]
    return rates[np.arange(len(chosen)), chosen].sum(), bool((rates.argmax(axis=1) == chosen).all())


@pytest.mark.parametrize(
    "given",
    [
        {"tokenizer_backend": "remote"},
        {"tokenizer_backend": "remote", "tokenized_requests": False},
        {"tokenizer_backend": "remote", "batch_size": 4},
        {"num_concurrent": 3},
    ],
    ids=["tokens", "texts", "batches", "concurrent"],
)
def test_its_numbers_are_the_models(given, found, byte_model):
    results = found(**given)
    for row, of_row in zip(ROWS, results["choose"], strict=True):
        for choice, (value, is_greedy) in zip(row["choices"], of_row, strict=True):
            wanted, greedy = log_prob(byte_model, row["context"], choice)
            assert (float(value), is_greedy) == (pytest.approx(wanted, abs=1e-3), greedy)
    for row, ((value, _),) in zip(ROWS, results["last_word"], strict=True):
        wanted, _ = log_prob(byte_model, row["context"], row["choices"][row["gold"]])
        assert float(value) == pytest.approx(wanted, abs=1e-3)
    for row, (value,) in zip(ROWS, results["rolling"], strict=True):
        assert float(value) == pytest.approx(byte_model.score(row["document"]).total, abs=1e-2)
    for row, (text,) in zip(ROWS, results["until"], strict=True):
        whole = byte_model.generate(row["context"], 12, temperature=0)
        assert text == whole.split(";")[0].split("\n")[0]
