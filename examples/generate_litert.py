"""Continues a text with a model in LiteRT's format. Needs neither TensorFlow nor txl_tf.

python -m pip install -r examples/requirements-litert.txt
python scripts/export_savedmodel.py --model_dir=demo/model --export_dir=exports/litert --litert
python examples/generate_litert.py exports/litert "def main(" --max_tokens=200 --temperature=0.8
"""

import argparse
import json
import pathlib
import sys
import time

import numpy as np
from ai_edge_litert.interpreter import Interpreter


def main():
    """Prints the prompt and its continuation as it is made, then how long a token took, on standard error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="what export_savedmodel.py --litert wrote")
    parser.add_argument("prompt")
    parser.add_argument("--max_tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.8, help="0: always the most likely token")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=None)
    args = parser.parse_args()
    try:
        model, vocabulary = Model(args.folder / "model.tflite", args.threads), Vocabulary(args.folder / "tokens.json")
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        about = " ".join(str(error).split())
        sys.exit(f"error: {args.folder} has no model as export_savedmodel.py --litert writes it ({about})")
    draw = np.random.default_rng(args.seed)
    for token in vocabulary.encode(args.prompt):
        log_probs = model.read(token)
    sys.stdout.buffer.write(args.prompt.encode())
    began = time.perf_counter()
    for _ in range(args.max_tokens):
        token = choose(log_probs, args.temperature, draw)
        sys.stdout.buffer.write(vocabulary.texts[token])
        sys.stdout.flush()
        log_probs = model.read(token)
    print()
    print(f"{1000 * (time.perf_counter() - began) / args.max_tokens:.2f} ms a token", file=sys.stderr)


class Model:
    """Reads a text token by token and keeps its memory."""

    def __init__(self, path, threads=None):
        # The runner belongs to the interpreter, which must live as long.
        self.interpreter = Interpreter(model_path=str(path), num_threads=threads)
        self.token = self.interpreter.get_signature_runner("token")
        inputs = self.token.get_input_details()
        self.memory = {name: np.zeros(inputs[name]["shape"], inputs[name]["dtype"]) for name in inputs}
        del self.memory["tokens"]

    def read(self, token):
        """The log-probabilities [V] of the next token, in nats."""
        found = self.token(tokens=np.array([[token]], np.int32), **self.memory)
        self.memory = {name: found[name] for name in self.memory}
        return found["log_probs"][0]


class Vocabulary:
    """Text to token ids, and each token's bytes."""

    def __init__(self, path):
        about = json.loads(path.read_text())
        self.texts = [text.encode("latin-1") for text in about["tokens"]]
        self.ids = {text: token for token, text in reversed(list(enumerate(self.texts))) if text}
        self.longest, self.unit = max(map(len, self.ids)), about["unit"]
        self.start_token, self.unknown = about["start_token"], about["unknown"]

    def encode(self, text):
        """The ids [n], at least one. Always takes the longest token that fits; a vocabulary of pieces may cut a text
        in another way."""
        data, ids, at = (text + " " if self.unit == "word" else text).encode(), [], 0
        while at < len(data):
            fits = [n for n in range(min(self.longest, len(data) - at), 0, -1) if data[at : at + n] in self.ids]
            if fits:
                ids.append(self.ids[data[at : at + fits[0]]])
            elif self.unknown is None:
                sys.exit(f"error: the model does not know {data[at:].decode(errors='replace')[:1]!r}: remove it")
            elif not ids or ids[-1] != self.unknown:
                ids.append(self.unknown)
            at += fits[0] if fits else 1
        return ids or [self.start_token]


def choose(log_probs, temperature, draw):
    """A token drawn at this temperature."""
    if temperature <= 0:
        return int(np.argmax(log_probs))
    weights = np.exp((log_probs - log_probs.max()) / temperature).astype(np.float64)
    return int(draw.choice(len(weights), p=weights / weights.sum()))


if __name__ == "__main__":
    main()
