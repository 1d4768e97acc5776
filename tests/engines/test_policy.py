from trainops.runtime.policy import CheckpointPolicy


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


def test_steps_count_from_the_start_of_the_attempt_or_the_last_checkpoint():
    policy = CheckpointPolicy(every_steps=10, clock=Clock())
    policy.saved(7)
    assert next(step for step in range(7, 30) if policy.is_due(step)) == 17
    policy.saved(18)
    assert not policy.is_due(27) and policy.is_due(28)


def test_time_needs_no_first_checkpoint_to_be_armed():
    clock = Clock()
    policy = CheckpointPolicy(every_steps=None, every_seconds=300, clock=clock)
    assert not policy.is_due(10**9)
    clock.seconds = 300
    assert policy.is_due(1)
    policy.saved(1)
    assert not policy.is_due(2)


def test_whichever_comes_first():
    clock = Clock()
    policy = CheckpointPolicy(every_steps=5, every_seconds=10, clock=clock)
    assert policy.is_due(5) and not policy.is_due(4)
    clock.seconds = 10
    assert policy.is_due(1)


def test_a_jobs_own_pace_counts_where_it_is_quicker():
    for given, pace, expected in [(None, 4, 4), (10, 4, 4), (3, 4, 3)]:
        policy = CheckpointPolicy(every_steps=given, clock=Clock())
        policy.at_least_every(pace)
        assert policy.every_steps == expected


def test_checkpoints_after_steps_lie_some_seconds_apart_where_steps_are_quick():
    clock = Clock()
    policy = CheckpointPolicy(every_steps=5, every_seconds=10, least_seconds=2, clock=clock)
    assert not policy.is_due(5)
    clock.seconds = 2
    assert policy.is_due(5) and not policy.is_due(4)
    policy.saved(40)
    clock.seconds = 3.9
    assert not policy.is_due(90)
    clock.seconds = 4
    assert policy.is_due(90)
