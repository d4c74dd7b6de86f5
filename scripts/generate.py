"""Continues a prompt with a trained model and prints the text while it is generated.

    python scripts/generate.py --model_dir=runs/demo --prompt="def main(" --max_tokens=400 --temperature=0.8
    python scripts/generate.py --model_dir=runs/demo --prompts_jsonl=prompts.jsonl > continued.jsonl

Memory is as long as in evaluation (config.json, "eval" group); --mem_len changes it without retraining.
With --nosame_length the prompt, except its last token, is read in whole segments of 64 tokens, as in training: each
token sees the memory before its segment, and its segment up to itself. The rest of the prompt and the generated tokens
are read one by one.

An XLNet can continue texts, too, though it is not trained for that: it predicts each token from the memory and the
tokens before it. Longer prompts give better texts.
"""

import sys

from absl import flags
from command_line import (
    define_model_flags,
    define_reach_flags,
    define_sampling_flags,
    given_model,
    given_precision,
    given_reach,
    given_sampling,
    run,
)
from flag_help import require_flags

from txl_tf.counted import counted
from txl_tf.data.tables.forms import read_text
from txl_tf.data.tables.results import new_names
from txl_tf.errors import Faults, InputError
from txl_tf.storage.strict_json import check_record, json_line, parse_json
from txl_tf.storage.surrogates import whole

FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", None, "what scripts/train.py wrote, or a name: fairy_tales, or OWNER/NAME of the Hub")
flags.DEFINE_string("prompt", None, "the text to continue; may be empty")
flags.DEFINE_string("prompt_file", None, "a file with the text to continue, instead of --prompt")
flags.DEFINE_string(
    "prompts_jsonl",
    None,
    'a file with many prompts, instead: each line is {"prompt": ..}, or the prompt as a JSON string. Prints a line of '
    "JSON for each, with its fields and the continuation (continuation_2 if it has such a field)",
)
flags.DEFINE_integer("max_tokens", 400, "tokens to generate", lower_bound=1)
define_sampling_flags()
flags.DEFINE_multi_string("stop", [], "end before this string; may be given several times")
flags.DEFINE_integer("seed", 0, "the same seed gives the same text; sample i uses seed + i")
flags.DEFINE_integer(
    "num_samples",
    1,
    "continuations to generate, one after the other; with --beam_size, how many of the best to print",
    lower_bound=1,
)
flags.DEFINE_integer(
    "beam_size",
    0,
    "beam search for the most probable text with this many hypotheses, instead of sampling; 0: sample",
    lower_bound=0,
)
flags.DEFINE_float(
    "length_penalty",
    0.0,
    "with --beam_size and --stop: values above 0 favour longer texts",
    lower_bound=0,
)
require_flags("model_dir")
define_model_flags("checkpoint", "dtype", "quantize")
define_reach_flags()


def main(_):
    given = [text for text in (FLAGS.prompt, FLAGS.prompt_file, FLAGS.prompts_jsonl or None) if text is not None]
    if len(given) != 1:
        raise InputError("give the text to continue with one of --prompt, --prompt_file and --prompts_jsonl")
    records = read_prompts() if FLAGS.prompts_jsonl else [{"prompt": read_prompt()}]
    prompts = [record["prompt"] for record in records]
    from txl_tf.data.vocabularies.base import (  # after the flags: TensorFlow takes seconds to load
        unknown_note,
        unknown_share,
    )
    from txl_tf.inference.abilities import tool_for
    from txl_tf.runs.model_dir import load_trained

    trained = load_trained(given_model(), checkpoint=FLAGS.checkpoint, **given_precision())
    model = tool_for(trained, "generate", **given_reach())
    share = unknown_share(model.vocabulary, [model.vocabulary.encode(prompt) for prompt in prompts])
    for note in (model.note, unknown_note(model.vocabulary.unit, share, FLAGS.prompts_jsonl or "the prompt")):
        if note:
            print(note, file=sys.stderr)
    spaced = sum(prompt.endswith(" ") for prompt in prompts)
    if spaced and model.vocabulary.unit == "subword":
        what = counted(spaced, "prompt ends", "prompts end")
        print(f"{what} in a space: the text goes on better without it, since a new word has its own", file=sys.stderr)
    made = continue_all(model, records) if FLAGS.prompts_jsonl else continue_one(model, *prompts)
    drawn = unknown_share(model.vocabulary, [model.vocabulary.encode(text) for text in made])
    if drawn:
        shown = model.vocabulary.decode([model.vocabulary.special.unknown]).strip()
        print(f"{drawn:.1%} of the new tokens are {shown}: text that the vocabulary does not have", file=sys.stderr)


def continue_one(model, prompt):
    """Prints a prompt with its continuations, while they are made, and returns these."""
    made = []
    for title, pieces in search(model, prompt) if FLAGS.beam_size else samples(model, prompt):
        if FLAGS.num_samples > 1:
            print(title)
        print(prompt, end="", flush=True)
        made.append("")
        for piece in pieces:
            print(piece, end="", flush=True)
            made[-1] += piece
        print()
    return made


BATCH = 16
"""Prompts that are continued together. No result depends on it."""


def continue_all(model, records):
    """Prints a line of JSON for each prompt: its fields, and continuation, or with --num_samples a list of them.

    Returns the continuations.
    """
    from txl_tf.progress import progress_bar

    number, at_once, made = FLAGS.num_samples, max(BATCH // FLAGS.num_samples, 1), []
    options = {"stop": FLAGS.stop, **given_sampling()}
    with progress_bar("generating", len(records), " prompts", shown=not sys.stdout.isatty()) as bar:
        for start in range(0, len(records), at_once):
            some = records[start : start + at_once]
            texts = [record["prompt"] for record in some for _ in range(number)]
            seeds = [FLAGS.seed + i for _ in some for i in range(number)]
            found = model.generate(texts, FLAGS.max_tokens, seed=seeds, **options)
            for i, record in enumerate(some):
                own = found[i * number : (i + 1) * number]
                about = {"continuation": own[0]} if number == 1 else {"continuations": own}
                about = {new: about[name] for name, new in new_names(list(record), list(about)).items()}
                print(json_line(record | about), end="", flush=True)
            made += found
            bar.update(len(some))
    return made


def samples(model, prompt):
    """Yields for every sample its title and an iterator over its pieces of text, which are generated one by one."""
    for i in range(FLAGS.num_samples):
        pieces = model.stream(prompt, FLAGS.max_tokens, stop=FLAGS.stop, seed=FLAGS.seed + i, **given_sampling())
        yield f"--- sample {i + 1}, seed {FLAGS.seed + i}", pieces


def search(model, prompt):
    """Yields for each of the best texts of a beam search its title and [its text]."""
    given = [name for name in (*given_sampling(), "seed") if FLAGS[name].present]
    if given:
        raise InputError(f"--{given[0]} is for sampling: it cannot be used with --beam_size")
    if FLAGS.num_samples > FLAGS.beam_size:
        raise InputError(f"--num_samples={FLAGS.num_samples} needs a --beam_size of {FLAGS.num_samples} or more")
    from txl_tf.progress import reported

    with reported("searching", " tokens", leave=False) as progress:
        found = model.search(
            prompt,
            FLAGS.max_tokens,
            beam_size=FLAGS.beam_size,
            length_penalty=FLAGS.length_penalty,
            stop=FLAGS.stop,
            progress=progress,
        )
    for hypothesis in found[: FLAGS.num_samples]:
        yield f"--- log-probability {hypothesis.total:.3f}", [hypothesis.text]


def read_prompt():
    """The text of --prompt or --prompt_file."""
    return read_text(FLAGS.prompt_file) if FLAGS.prompt is None else FLAGS.prompt


def read_prompts():
    """The objects in the lines of --prompts_jsonl, each with a prompt."""
    if FLAGS.beam_size:
        raise InputError(f"--beam_size={FLAGS.beam_size} is for a single prompt: omit it, or give --prompt")
    path, faults, records = FLAGS.prompts_jsonl, Faults(FLAGS.prompts_jsonl), []
    for i, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            where, remedy = f"{path}, line {i}", 'a line is {"prompt": ".."} or a JSON string'
            with faults.noted(i):
                found = parse_json(line, where, remedy)
                found = {"prompt": found} if isinstance(found, str) else found
                check_record(found, where, {"prompt": str}, remedy)
                records.append(found | {"prompt": whole(found["prompt"])})
    faults.raise_any()
    if not records:
        raise InputError(f"{path} has no prompts: give a line of JSON for each")
    return records


if __name__ == "__main__":
    run(main)
