"""Trains a language model on your own text, then continues a prompt: python examples/own_text.py FILE FOLDER."""

import sys

import txl_tf


def main(source, folder, prompt="The ", **settings):
    """Text to corpus, corpus to model, model to text. settings: of the run, as train_steps=2000."""
    txl_tf.prepare("text", f"{folder}/data", source=source)
    model = txl_tf.train(f"{folder}/data", f"{folder}/model", preset="demo", **settings)
    result = model.evaluate(f"{folder}/data", split="test")
    print(f"{result['bits_per_byte']:.3f} bits per byte of test, which training has not read")
    print(prompt + model.generate(prompt, max_tokens=200, temperature=0.8))


if __name__ == "__main__":
    main(*sys.argv[1:])
