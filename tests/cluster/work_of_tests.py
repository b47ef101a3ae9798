"""Work and estimators for the tests of executors, in a module that workers can import."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from runoff.errors import MemberError
from runoff.executors import Work


@dataclass(frozen=True)
class Counted(Work):
    """Trains item i to a line of text. Each attempt leaves a file in `log`, and `troubles` says what goes wrong."""

    log: str
    seconds: float = 0.05
    troubles: tuple[tuple[int, str], ...] = ()
    data: np.ndarray | None = None
    files: bool = True
    folder: str = ""  # the storage, for troubles with it
    size: int = 0  # bytes that a file has at least

    def __setstate__(self, state):
        """Hang or fail before anything is reported, once."""
        troubles = {"arrives slowly", "arrives broken"} & {*dict(state["troubles"]).values()}
        if troubles and Path(state["log"], "measured").exists():
            with suppress(FileExistsError):
                Path(state["log"], "arrived").touch(exist_ok=False)
                if "arrives broken" in troubles:
                    raise EOFError("the work is cut off")
                time.sleep(600)
        self.__dict__.update(state)

    def train(self, items, place):
        for item in items:
            attempt = len(self.attempts(item))
            Path(self.log, f"{item}-{attempt}-{os.getpid()}").touch()
            trouble = dict(self.troubles).get(item, dict(self.troubles).get(-1))
            if trouble == "kills once" and not attempt:
                while len(list(Path(self.folder).glob("*.result"))) < item:
                    time.sleep(0.01)
                os._exit(7)  # what was finished before is written, and not all of it reported
            if trouble == "waits":
                while not Path(self.log, "go").exists():
                    time.sleep(0.05)
            if trouble == "raises":
                raise MemberError(f"member {item} could not be trained on its 5 samples: OSError: no space left")
            if trouble == "raises something":
                raise ZeroDivisionError("division by zero")
            if trouble == "kills":
                os._exit(7)
            if trouble == "hangs once" and not attempt:
                time.sleep(600)
            time.sleep(self.seconds)
            yield item, f"result {item} {0 if self.data is None else float(self.data.sum())}"

    def attempts(self, item):
        return list(Path(self.log).glob(f"{item}-*"))

    def kind(self, place):
        return {"place": "here"}

    def member(self, item):
        return item

    def weight(self, item):
        return 1.0

    def measure(self, items, place):
        Path(self.log, "measured").touch()
        return self.seconds * len(items)

    def address(self, item):
        return f"{item:064x}" if self.files else None

    def pack(self, item, result):
        return result.encode().ljust(self.size)


class Slow(LogisticRegression):
    """A slow logistic regression."""

    def fit(self, X, y):
        time.sleep(0.05)
        return super().fit(X, y)


def kind_by_environment(place):
    """Stands for the kind of a machine."""
    return {"place": os.environ.get("KIND", "even")}


class Unseeded(LogisticRegression):
    """Learn something different every time."""

    def fit(self, X, y):
        super().fit(X, y)
        self.coef_ += int.from_bytes(os.urandom(2)) / 1e4
        return self
