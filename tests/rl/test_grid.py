"""The grid world: space, affordances, meters, sight."""

import pytest
import torch

from trainops.kinds.rl.environment import EnvironmentContext
from trainops.kinds.rl.grid.substrate import cell_numbers, cells_at, moved
from trainops.kinds.rl.grid.world import GridWorld
from trainops.kinds.rl.recipes.grid_world import GridWorldParameters
from trainops.recipes import recipes
from trainops.runtime.errors import ConfigError

CPU = torch.device("cpu")


def world(**parameters):
    return GridWorld(GridWorldParameters.parse(parameters), EnvironmentContext(seed=3))


def one(count=1, **parameters):
    return world(**parameters).make(count, 5, CPU)


def act(environment, *names):
    """Let all copies do these things one after the other; return the last outcome."""
    actions = environment.world.space.actions
    outcome = None
    for name in names:
        outcome = environment.step(torch.full((environment.count,), actions.index(name)))
    return outcome


@pytest.mark.parametrize(
    ("boundary", "at", "by", "expected"),
    [("clamp", 3, 2, 4), ("clamp", 1, -2, 0), ("wrap", 3, 2, 0), ("wrap", 0, -1, 4),
     ("bounce", 3, 2, 3), ("bounce", 4, 1, 3), ("bounce", 1, -2, 1), ("bounce", 0, -9, 1),
     ("sticky", 3, 2, 3), ("sticky", 2, 2, 4), ("sticky", 1, -2, 1)],
)  # fmt: skip
def test_edges(boundary, at, by, expected):
    size = torch.tensor([5])
    assert moved(torch.tensor([[at]]), torch.tensor([[by]]), size, boundary).item() == expected


@pytest.mark.parametrize("size", [(), (7,), (3, 4), (2, 3, 5)])
def test_cells_have_numbers_and_back(size):
    numbers = torch.arange(torch.Size(size).numel())
    assert torch.equal(cell_numbers(cells_at(numbers, size), size), numbers)


@pytest.mark.parametrize(
    ("size", "substrate", "actions"),
    [([], "Aspatial", ["use A", "wait"]), ([4], "Grid1D", ["left", "right", "use", "wait"]),
     ([4, 4], "Grid2D", ["left", "right", "up", "down", "use", "wait"]),
     ([2, 2, 2], "Grid3D", ["left", "right", "up", "down", "below", "above", "use", "wait"])],
)  # fmt: skip
def test_substrates_of_0_to_3_dimensions(size, substrate, actions):
    made = world(size=size, affordances=[{"name": "A"}])
    assert made.space.substrate == substrate and list(made.space.actions) == actions
    environment = made.make(3, 1, CPU)
    seen = environment.observe()
    assert seen.shape == (3, made.space.observation_dim)
    assert environment.step(torch.zeros(3, dtype=torch.int64)).observations.shape == seen.shape


def test_an_affordance_costs_gives_and_opens_by_the_clock():
    meters = [{"name": "money", "initial": 0.5}, {"name": "food", "initial": 0.25}]
    shop = {"name": "Shop", "position": [0], "costs": {"money": 0.25}, "effects": {"food": 0.5},
            "hours": [1, 3], "reward": 2.0}  # fmt: skip
    environment = one(size=[3], start=[0], day_steps=4, affordances=[shop], meters=meters)
    assert act(environment, "use").rewards.item() == 0.0, "closed at 0"
    assert act(environment, "use").rewards.item() == 2.0
    assert environment.meters.tolist() == [[0.25, 0.75]]
    act(environment, "use", "use", "use", "use")
    assert environment.meters.tolist() == [[0.0, 1.0]], "again at 2, closed at 3, then no money"
    assert environment.tallies()["uses"] == [2]


def test_hours_may_go_over_midnight():
    bar = {"name": "Bar", "position": [0], "hours": [3, 1], "reward": 1.0}
    environment = one(size=[2], start=[0], day_steps=4, affordances=[bar])
    rewards = [act(environment, "use").rewards.item() for _ in range(4)]
    assert rewards == [1.0, 0.0, 0.0, 1.0]


def test_meters_deplete_and_a_low_one_drains_another():
    meters = [{"name": "a", "depletion": 0.25}, {"name": "b"}]
    cascade = {"low": "a", "below": 0.5, "drains": "b", "by": 0.25}
    environment = one(size=[2], meters=meters, cascades=[cascade])
    act(environment, "wait", "wait")
    assert environment.meters.tolist() == [[0.5, 1.0]]
    act(environment, "wait", "wait")
    assert environment.meters.tolist() == [[0.0, 1.0 - 0.125]], "half of 0.25, as a was half low"


def test_death_ends_an_episode_and_time_cuts_it():
    fatal = [{"name": "energy", "depletion": 0.5, "is_fatal": True}]
    environment = one(size=[2], meters=fatal, reward={"death": -3.0, "survival": 1.0})
    assert not act(environment, "wait").terminated.item()
    outcome = act(environment, "wait")
    assert outcome.terminated.item() and outcome.rewards.item() == -2.0
    environment = one(size=[2], max_steps=2)
    outcome = act(environment, "wait", "wait")
    assert outcome.truncated.item() and not outcome.terminated.item()


def test_how_fast_meters_deplete_can_be_set_for_each_agent():
    environment = one(2, size=[2], meters=[{"name": "energy", "depletion": 0.25}])
    environment.depletion[1] = 2.0
    act(environment, "wait")
    assert environment.meters.flatten().tolist() == [0.75, 0.5]


def test_a_window_shows_what_is_near():
    made = one(size=[5, 5], start=[2, 2], vision=1, affordances=[
        {"name": "A", "position": [2, 3]}, {"name": "B", "position": [0, 0]}])  # fmt: skip
    assert made.world.space.fields == (("position", 2), ("window", 18), ("here", 2))
    window = made.observe()[0, 2:20].view(2, 3, 3)
    assert window[0].tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 0]] and not window[1].any()


def test_a_window_sees_over_the_edge_of_a_world_that_wraps():
    wrapping = {"size": [5], "start": [0], "vision": 1,
                "affordances": [{"name": "A", "position": [4]}]}  # fmt: skip
    assert one(**wrapping).observe()[0, 1:4].tolist() == [0, 0, 0]
    assert one(**wrapping, boundary="wrap").observe()[0, 1:4].tolist() == [1, 0, 0]


def test_masks_leave_out_what_has_no_effect():
    environment = one(size=[3], start=[0], affordances=[{"name": "A", "position": [1]}])
    assert environment.masks().tolist() == [[False, True, False, True]]
    act(environment, "right")
    assert environment.masks().tolist() == [[True, True, True, True]]


def test_affordances_drawn_for_each_episode_never_share_a_cell():
    drawn = {"size": [2, 2], "placement": "episode", "affordances": [
        {"name": "A", "position": [1, 1]}, {"name": "B"}, {"name": "C"}]}  # fmt: skip
    environment = one(50, **drawn)
    cells = cell_numbers(environment.layout, (2, 2))
    assert (cells[:, 0] == 3).all()
    assert all(len(set(row)) == 3 for row in cells.tolist())
    assert len({tuple(row) for row in cells.tolist()}) > 3


def test_a_thousand_copies_do_what_single_ones_do():
    parameters = {"size": [4, 4], "start": [1, 1], "affordances": [
        {"name": "A", "position": [1, 2], "effects": {"energy": 0.2}}], "meters":
        [{"name": "energy", "depletion": 0.1, "is_fatal": True}]}  # fmt: skip
    many, single = one(1000, **parameters), one(**parameters)
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        action = torch.randint(6, (1,), generator=generator)
        together, alone = many.step(action.expand(1000)), single.step(action)
        assert torch.equal(together.observations, alone.observations.expand(1000, -1))
        assert torch.equal(together.rewards, alone.rewards.expand(1000))


@pytest.mark.parametrize(
    ("parameters", "field", "problem"),
    [({"size": [0]}, "size", "lengths of at least 1"),
     ({"size": [2], "affordances": [{"name": "A"}] * 2}, "affordances", "each name once"),
     ({"size": [2], "start": [2]}, "start", "a cell of"),
     ({"affordances": [{"name": "A", "costs": {"joy": 1.0}}]}, "affordances.0", "allowed: none"),
     ({"affordances": [{"name": "A", "hours": [0, 25]}]}, "affordances.0.hours", "0 to day_steps"),
     ({"reward": {"meters": {"joy": 1.0}}}, "reward.meters", "the meter 'joy'")],
)  # fmt: skip
def test_a_world_that_cannot_be_is_refused_by_its_field(parameters, field, problem):
    with pytest.raises(ConfigError) as refused:
        GridWorldParameters.parse(parameters)
    assert problem in refused.value.errors[field]


@pytest.mark.parametrize("name", [n for n in recipes("rl") if n.startswith("grid_")])
def test_each_ready_level_can_be_built_and_played(name):
    recipe = recipes("rl")[name]
    parameters = recipe.parse_parameters(recipe.example.get("parameters", {}))
    environment = recipe.builder()(parameters, EnvironmentContext(seed=1)).make(4, 1, CPU)
    for _ in range(5):
        masks = environment.masks()
        assert masks.any(1).all(), "something can always be done"
        outcome = environment.step(masks.float().argmax(1))
        assert torch.isfinite(outcome.observations).all()
