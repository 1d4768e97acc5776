"""The smallest job there is, and what was saved of it."""

import torch


class CountingJob:
    unit = "step"
    place = "somewhere"

    def __init__(self, total_steps=5, fail_at=None):
        self.step, self.total_steps, self.fail_at = 0, total_steps, fail_at
        self.weights = torch.zeros(3)

    def advance(self):
        self.weights += 1
        if self.step + 1 == self.fail_at:
            raise ValueError("boom")
        self.step += 1
        return {"count": float(self.step)}

    def state_dict(self):
        return {"state": {"step": self.step}, "model": self.weights}

    def load_state_dict(self, state):
        self.step, self.weights = state["state"]["step"], state["model"].clone()

    def result(self):
        return {"count": self.step}


def saved(supervisor):
    return [(str(each.type), each.step) for each in supervisor.checkpoints]
