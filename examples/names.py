"""Learns to find names in texts: python examples/names.py FILE.conll FOLDER.

Each line of the file has a word and its tag, such as B-PER; an empty line ends a sentence. The model is
xlnet-base-cased, which is fetched from the Hub on first use.
"""

import sys

import txl_tf


def main(file, folder, text="Anna Berg flew from Oslo to Rome .", init="xlnet/xlnet-base-cased", **settings):
    """Fine-tunes, then finds the names in a text. settings: of training, as train_steps=600."""
    tuner = txl_tf.Finetuner(init, "tagging", file, settings={"train": settings})
    result = tuner.run(folder)
    print(f"F1 on the tenth of the sentences that was held out: {result['f1']:.2f}")
    found = txl_tf.load(folder).predict(text)
    print(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
