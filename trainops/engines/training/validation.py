"""One validation under way, batch by batch."""

from trainops.engines.training.learner import Learner


class Validation:
    """The means so far over the batches that are done. It is never saved: a resume begins anew."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.averages = learner.new_averages()
        self.batches = learner.validation_batches()
        self.num_done = 0

    @property
    def place(self) -> str:
        return f"batch {self.num_done} of {len(self.batches)} of its validation"

    def go_on(self) -> bool:
        """Measure the next batch; return whether it was the last."""
        self.learner.validate(self.batches[self.num_done], self.averages)
        self.num_done += 1
        return self.num_done == len(self.batches)
