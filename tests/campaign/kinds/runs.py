"""Not a test: runs that are made longer, and runs that begin with another run's settings."""

import functools
import json

from campaign.case import Case


def cases():
    """Every case of runs."""
    for steps, says in (("4", "above 4"), ("3", "above 4"), (False, "above 4")):
        title = f"runs: extended to {steps or 'nothing'}"
        yield Case("extend", title, {"train_steps": steps}, refused=True, says=f"give --train_steps {says}")
    yield Case("extend", "runs: more steps without --extend", {"extend": False}, refused=True, says="need --extend")
    yield Case("extend", "runs: nothing to extend", {"model_dir": "new"}, refused=True, says="new has no config.json")
    yield Case("extend", "runs: another rate", {"learning_rate": "0.5"}, refused=True, says="learning_rate=0.5 (was ")
    for history in ([2], [4], [9], ["x"], [-1], [3, 2], 7, None):
        setup = functools.partial(write_history, value=history)
        about = {"works": True} if history == [2] else {"refused": True, "says": "half/config.json"}
        yield Case("extend", f"runs: a history of {history}", setup=setup, **about)
    setup = functools.partial(write_history, value=[2])
    yield Case("continue", "runs: extended before", setup=setup, works=True)
    yield Case("settings_from", "runs: of one that was extended", setup=setup, usual=True)
    yield Case("settings_from", "runs: of a corpus", {"settings_from": "words"}, refused=True, says="has no config")
    yield Case("settings_from", "runs: and a preset", {"preset": "demo"}, refused=True, says="not both")
    yield Case("settings_from", "runs: without data", {"data_dir": False}, refused=True, says="--data_dir")
    yield Case("settings_from", "runs: into the run itself", {"model_dir": "half"}, refused=True, says="train_steps=2")
    for tokens, says in (("1", "evaluations read about "), ("99999999", "")):
        flags = {"eval_tokens": tokens}
        yield Case("settings_from", f"runs: evaluated on {tokens} tokens", flags, works=True, says=says)
    yield Case("finetune_as", "runs: of a pretraining", {"settings_from": "xlnet"}, refused=True, says="fine-tuned")
    yield Case("finetune_as", "runs: of another task", {"task": "tagging"}, refused=True, says="omit --task")


def write_history(folder, value):
    """Writes where the run was extended."""
    path = folder / "half" / "config.json"
    config = json.loads(path.read_text())
    config["train"]["extended_at"] = value
    path.write_text(json.dumps(config))
