"""How much work a turn at the model does, learned from earlier turns."""

import collections


class Pace:
    """Chooses the units of work of a call, such as tokens or windows, so that it takes about `seconds`.

    Args:
        seconds: a call that takes less doubles the next one; the second that takes over four times this shrinks it. The
            first one may have waited for a compilation.
        first: units while nothing is known. All numbers of units are powers of two, since a model is compiled for each.
        most: the most units.
    """

    def __init__(self, seconds, first, most):
        self._seconds, self._most = seconds, most
        self._units = collections.defaultdict(lambda: first)  # by what makes a unit take longer
        self._slow = set()

    def __getitem__(self, key):
        return self._units[key]

    def forget(self):
        """Begins anew: what it learned were compilations."""
        self._units.clear()
        self._slow.clear()

    def learn(self, key, units, seconds):
        """Learns from the seconds of a call for some units."""
        if seconds > 4 * self._seconds and (key, units) not in self._slow:
            self._slow.add((key, units))
        elif seconds > 4 * self._seconds:
            fit = max(1, int(units * 2 * self._seconds / seconds))
            self._units[key] = 1 << (fit.bit_length() - 1)
        elif seconds < self._seconds and units == self._units[key]:
            self._units[key] = min(self._most, 2 * units)
