"""The largest batch that fits, found with few compilations."""

from txl_tf.errors import InputError


def largest(attempt, start):
    """The largest size that fits.

    Memory grows almost linearly with the size, so a line through earlier attempts gives the next size to try. The
    search ends when a size fits and the next larger one does not.

    Args:
        attempt: size -> (whether it fits, bytes wanted, bytes available).
        start: the first size to try, at least 1.

    Raises:
        InputError: not even 1 fits.
    """
    fits, too_large, known, size = 0, None, {}, start
    while too_large is None or too_large - fits > 1:
        enough, wanted, available = attempt(size)
        known[size] = wanted
        if enough:
            fits = size
        else:
            too_large = size
        size = _guess(known, available, fits, too_large)
    if not fits:
        raise InputError("not even one lane per core fits: take a smaller model, tgt_len or mem_len, or --remat")
    return fits


def _guess(known, available, fits, too_large):
    lowest, highest = fits + 1, 4 * fits if too_large is None else too_large - 1
    nearest = min(known, key=lambda size: abs(known[size] - available))
    first, last = min(known), max(known)
    if first == last:
        guess = 2 * first if too_large is None else first // 2
    else:  # the slope between the farthest attempts: between close ones differences of layout would dominate
        slope = (known[last] - known[first]) / (last - first)
        guess = nearest + round((available - known[nearest]) / slope) if slope > 0 else 0
        if too_large is not None and not lowest <= guess <= highest:  # memory is not linear here: bisect
            guess = (lowest + highest) // 2
    return max(lowest, min(guess, highest))
