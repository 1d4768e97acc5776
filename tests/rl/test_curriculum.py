"""Stages: when agents advance and retreat."""

from collections import Counter

from trainops.kinds.rl.config import CurriculumConfig
from trainops.kinds.rl.curriculum import Curriculum

STAGES = [{"max_steps": 10}, {"max_steps": 20}, {"max_steps": 30}]


def curriculum(rule="adaptive", agents=1, **more):
    config = {"rule": rule, "stages": STAGES, "window": 4, "min_episodes": 4, **more}
    return Curriculum(CurriculumConfig.parse(config), agents, seed=3)


def tell(of, survival, *, gained=0.0, entropy=0.5, times=1, agent=0):
    for _ in range(times):
        of.episode_done(agent, survival=survival, gained=gained, entropy=entropy, episodes=9)


def test_an_agent_advances_when_it_survives_and_retreats_when_it_does_not():
    one = curriculum(agents=2)
    tell(one, 1.0, times=3)
    assert one.stages == [0, 0], "not before min_episodes"
    tell(one, 1.0)
    assert one.stages == [1, 0] and one.stage(0).max_steps == 20
    tell(one, 0.1, times=4)
    assert one.stages == [0, 0]
    assert one.changes == [[9, 0, 1], [9, 0, 0]]


def test_the_first_and_the_last_stage_have_nothing_beyond():
    one = curriculum()
    tell(one, 0.0, times=9)
    assert one.stages == [0]
    tell(one, 1.0, times=40)
    assert one.stages == [2]


def test_an_agent_that_gets_worse_or_has_not_decided_does_not_advance():
    one = curriculum()
    for gained in (4.0, 3.0, 2.0, 1.0, 0.0):
        tell(one, 1.0, gained=gained)
    assert one.stages == [0]
    one = curriculum(max_entropy=0.4)
    tell(one, 1.0, times=9, entropy=0.5)
    assert one.stages == [0]
    tell(one, 1.0, times=9, entropy=0.3)
    assert one.stages == [2] or one.stages == [1]


def test_the_adversary_prefers_stages_where_there_is_most_to_gain():
    one = curriculum("adversarial")
    drawn = Counter()
    for number in range(600):
        stage = one.stages[0]
        drawn[stage] += 1
        tell(one, 1.0, gained=float(number % 2 * 10) if stage == 1 else 5.0)
    assert drawn[1] > 300 and min(drawn.values()) > 0


def test_two_curricula_of_one_state_go_on_alike():
    for rule in ("adaptive", "adversarial"):
        one, other = curriculum(rule, agents=2), curriculum(rule, agents=2)
        tell(one, 0.9, gained=1.0, times=7)
        tell(one, 0.1, gained=3.0, times=2, agent=1)
        other.load_state_dict(one.state_dict())
        for each in (one, other):
            tell(each, 0.9, gained=2.0, times=9, agent=1)
        assert one.stages == other.stages and one.changes == other.changes
