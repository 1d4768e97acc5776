"""A label outside of the classes is named with its batch, by every form of training."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from trainops.kind import KINDS
from trainops.runtime.errors import InputError

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="a failed assertion on a GPU ends the tests of its process"
)
CLASSES = 5
TOY = {"recipe": "toy", "threads": 1, "batch_size": 8, "epochs": 3}


def labels(bad, at):
    truth = torch.arange(12) % CLASSES
    truth[at] = bad
    return truth


def classifier(truth, loss=functional.cross_entropy, validated=None):
    def train(run, parameters):
        scores = run.keep("scores", nn.Linear(1, CLASSES))
        batches = run.loader("train", TensorDataset(truth), batch_size=3, shuffle=False)
        for _ in run.epochs(2):
            for (some,) in batches:
                yield {"train_loss": loss(scores(torch.ones(len(some), 1)), some).detach()}
            if validated is not None:
                loss(scores(torch.ones(len(validated), 1)), validated)

    return train


@pytest.mark.parametrize("bad", [7, -1])
def test_the_label_its_batch_and_the_classes_are_named(follow, bad):
    with pytest.raises(InputError) as found:
        follow(classifier(labels(bad, 7)))
    place = "epoch 1 of 2, train 3 of 4"
    assert str(found.value) == f"labels: got {bad} ({place}); allowed: 0 to 4"
    assert isinstance(found.value.__cause__, IndexError)


def test_after_a_loop_the_enclosing_one_is_named(follow):
    with pytest.raises(InputError, match=r"^labels: got 9 \(epoch 1 of 2\); allowed: 0 to 4$"):
        follow(classifier(labels(0, 0), validated=torch.tensor([1, 9])))


def test_a_loss_of_pixels_has_its_classes_in_the_second_dimension(follow):
    def pixels(scores, truth):
        images = truth.expand(1, 2, -1)
        return functional.cross_entropy(scores.T.expand(1, 2, -1, -1).transpose(1, 2), images)

    with pytest.raises(InputError, match=r"got 7 \(.*train 1 of 4\); allowed: 0 to 4$"):
        follow(classifier(labels(7, 0), loss=pixels))


def test_an_own_loss_is_named_without_its_number_of_classes(follow):
    def own(scores, truth):
        return torch.ops.aten.nll_loss(scores.log_softmax(1), truth)

    with pytest.raises(InputError, match=r"got 7 \(.*\); allowed: 0 to the number of classes - 1"):
        follow(classifier(labels(7, 0), loss=own))


def test_an_assertion_of_the_gpu_is_explained(follow):
    def raises(scores, truth):
        raise RuntimeError("CUDA error: device-side assert triggered")

    says = r"the GPU got .* \(epoch 1 of 2, train 1 of 4, or shortly before\); .*device: cpu"
    with pytest.raises(InputError, match=says):
        follow(classifier(labels(0, 0), loss=raises))


def test_other_errors_of_an_index_stay_as_they_are(follow):
    with pytest.raises(IndexError, match="list index out of range"):
        follow(classifier(labels(0, 0), loss=lambda scores, truth: [][0]))


def test_ingredients_name_the_batches_of_the_step_and_of_the_validation():
    kind = KINDS["training"]
    job = kind.make_job(kind.parse_config({**TOY, "gradient_accumulation": 2}))
    bad = int(job._epoch_order()[8 * 2 + 3])
    job.trainer.train.targets[bad] = 7
    job.advance()
    with pytest.raises(InputError) as found:
        job.advance()
    batches = f"batches 3 to 4 of {job.trainer.route.batches_per_epoch}"
    assert str(found.value) == f"labels: got 7 (epoch 1 of 3, {batches}); allowed: 0 to 2"
    job.trainer.train.targets[bad] = 0
    job.trainer.validation.targets[8] = -3
    says = r"got -3 \(epoch 1 of 3, validation batch 2\); allowed: 0 to 2"
    with pytest.raises(InputError, match=says):
        for _ in range(job.trainer.route.steps_per_epoch):
            job.advance()
