"""Not a test: gives a text to a model in Python, as a program does that imports txl_tf.

The text comes as JSON, which can hold half a surrogate pair; a command line cannot.
"""

import argparse
import json

import txl_tf

CALLS = {
    "generate": lambda model, text: model.generate([text], max_tokens=4, seed=1),
    "score": lambda model, text: model.score([text]),
    "fill": lambda model, text: model.fill(text + " ____", context=text, top=1),
    "encode": lambda model, text: model.encode([(text, text)]),
    "classify": lambda model, text: model.predict([(text, text)]),
    "tag": lambda model, text: model.predict([text]),
    "label": lambda model, text: model.predict([text]),
    "answer": lambda model, text: model.predict([{"question": text, "context": text}]),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model_dir")
    parser.add_argument("--call", choices=CALLS)
    parser.add_argument("--text", type=json.loads)
    args = parser.parse_args()
    print(CALLS[args.call](txl_tf.load(args.model_dir, progress=False, jit_compile=False), args.text))


if __name__ == "__main__":
    main()
