"""Work for executors, in a module that processes of joblib import quickly: that of the tests needs PyTorch."""

import signal
import time

from runoff.executors import Work


class Lines(Work):
    """Item i becomes a line of text; item 5 fails."""

    def train(self, items, place):
        for item in items:
            if item == 5:
                raise KeyError("five")
            yield item, f"line {item}"

    def kind(self, place):
        return {"place": "here"}

    def member(self, item):
        return item

    def weight(self, item):
        return 1.0

    def measure(self, items, place):
        return 0.5

    def address(self, item):
        return f"{item:064x}"

    def pack(self, item, result):
        return result.encode()


class OneWaits(Lines):
    """Item 0 waits for a file, which the collector writes after it got another result."""

    def __init__(self, file):
        self.file = file

    def train(self, items, place):
        until = time.monotonic() + 120
        while items == [0] and not self.file.exists() and time.monotonic() < until:
            time.sleep(0.01)
        yield from ((item, self.file.exists()) for item in items)


class Signals(Lines):
    """Whether SIGTERM ends the process at once, in place of a line."""

    def train(self, items, place):
        yield from ((item, signal.getsignal(signal.SIGTERM) is signal.SIG_DFL) for item in items)
