"""Files in SQuAD's format, made here: the answer is the number after "River"; without "River" there is none."""

import json

import numpy as np


def write(path, count, seed=0, impossible=True):
    """Writes a file of `count` questions, two a paragraph, and returns its path.

    Args:
        path: of the file.
        count: even.
        seed: of the texts.
        impossible: whether some paragraphs have no answer.
    """
    rng, paragraphs = np.random.default_rng(seed), []
    for number in range(count // 2):
        words = [str(word) for word in rng.choice(["the", "fine", "dash-ed", "(one)", "End"], rng.integers(2, 12))]
        answer = str(rng.integers(10, 99))
        if not impossible or number % 3:
            words.insert(rng.integers(len(words)), f"River {answer}")
        text = "  ".join(words)
        places = [{"text": answer, "answer_start": text.index(answer)}] if "River" in text else []
        questions = [
            {
                "id": f"{seed}-{number}-{which}",
                "question": f"{which} River?",
                "answers": places,
                "is_impossible": not places,
            }
            for which in ("the", "one")
        ]
        paragraphs.append({"context": text, "qas": questions})
    path.write_text(json.dumps({"version": "2.0", "data": [{"title": "", "paragraphs": paragraphs}]}))
    return str(path)
