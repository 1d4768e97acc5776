"""Operations of several nodes: all their workers are claimed at once, or none."""

import random
import threading
from dataclasses import replace

import pytest
from django.db import OperationalError, connection

from apps.operations.attempts import node_address, nodes, work
from apps.operations.attempts.node_address import own_address, servers
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Node, Operation
from apps.operations.placement import GB, Device, FreeSlot, Offer, ServingWorker
from apps.operations.requests import services
from apps.operations.scheduling import claims, gangs, queue_status
from apps.operations.scheduling.slots import RunningAttempt, Slots
from apps.workers import registry
from apps.workers.models import Worker
from apps.workers.runtime import WorkerProcess
from tests.operations import rows
from tests.thinning import some_of
from tests.waiting import wait_until
from trainops.clock import seconds_from_now
from trainops.process.protocol import Listening, NodeSilent, now
from trainops.runtime.errors import ConfigError

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]
GPUS = (Device("GPU-1", 24 * GB), Device("GPU-2", 80 * GB))


def register(name, slots=1, **more):
    registry.register(worker_id=name, kinds=["loop"], slots=slots, **more)
    Worker.objects.filter(pk=name).update(storage_free_bytes=100 * GB)


def submitted(number, *, queue="", priority=0, **config):
    config = {"recipe": "digits_loop", "nodes": number, "device": "cpu"} | config
    return services.submit(kind="loop", config=config, owner=None, queue=queue, priority=priority)


def offer(num_free, of=None, **more):
    return Offer(
        kinds=["loop"],
        memory_bytes=8 * GB,
        disk_bytes=100 * GB,
        free_slots=[FreeSlot(num_slots=num_free)] if num_free else [],
        all_slots=FreeSlot(num_slots=of or num_free),
        is_node=True,
        **more,
    )


def claim(name, num_free=1, of=None, **more):
    operation = claims.claim(worker_id=name, host=name, offer=offer(num_free, of, **more))
    return operation and operation.pk


def blocked(operation):
    return queue_status.of_operation(services.get(operation.pk)).message


def test_a_claim_takes_the_other_workers_with_it():
    register("a", 2)
    register("b", 2)
    register("c", 2)
    operation = submitted(2, processes=2)
    assert claim("b", 2) == operation.pk
    node = Node.objects.get()
    assert (node.number, node.worker_id, node.attempt, len(node.token)) == (1, "a", 1, 64)
    assert Attempt.objects.get().num_nodes == 2
    assert services.get(operation.pk).events.first().note == "attempt 1 on b, with a"
    taken = {each.worker_id: each.num_running for each in queue_status.workers()}
    assert (taken["a"], taken["b"], taken["c"]) == (2, 2, 0)


def test_a_worker_whose_slots_were_claimed_meanwhile_claims_nothing():
    register("a")
    register("b")
    submitted(2)
    assert claim("a") is not None
    small = submitted(1)
    assert claim("b") is None  # its node has not started: it counts that slot as free
    Node.objects.update(started_at=seconds_from_now(0))
    assert claim("b") == small.pk


def test_a_claim_waits_for_another_one_that_promises_its_slots(monkeypatch):
    register("a")
    register("b")
    large, small = submitted(2, priority=1), submitted(1)
    is_promising, goes_on = threading.Event(), threading.Event()
    claimed = {}

    def promise(*arguments):
        is_promising.set()
        goes_on.wait()
        return reserve(*arguments)

    def work(name, allowed):
        claimed[name] = claim(name, labels=[allowed])
        connection.close()

    reserve = gangs.reserve
    monkeypatch.setattr(gangs, "reserve", promise)
    Operation.objects.filter(pk=large.pk).update(queue="l")
    Worker.objects.update(labels=["l"])
    first, second = (threading.Thread(target=work, args=each) for each in [("a", "l"), ("b", "")])
    first.start()
    is_promising.wait()
    second.start()
    second.join(1)  # without a lock it would have claimed
    goes_on.set()
    first.join()
    second.join()
    assert claimed == {"a": large.pk, "b": None}
    assert small.pk in Operation.objects.due().values_list("pk", flat=True)


def test_an_operation_waits_until_all_its_workers_are_free():
    register("a", 2)
    register("b", 2)
    busy = submitted(1)
    assert claim("b", 2) == busy.pk
    operation = submitted(2, processes=2)
    assert claim("a", 2) is None
    assert blocked(operation) == ("Needs 2 workers that have 2 free slots each at once; 1 does.")
    claims.finish(services.get(busy.pk), State.COMPLETED, outcome=Attempt.Outcome.COMPLETED)
    assert claim("a", 2) == operation.pk


def test_each_node_has_gpus_of_its_own():
    for name in "ab":
        gpus = [{"id": f"{name}-{each.id}", "memory_bytes": each.memory_bytes} for each in GPUS]
        register(name, 2, capabilities={"gpus": gpus})
    operation = submitted(2, device="cuda")
    free = FreeSlot(devices=GPUS, has_gpus=True, num_slots=2)
    given = replace(offer(2), free_slots=[free], all_slots=free)
    taken = claims.claim(worker_id="a", host="a", offer=given)
    assert taken.pk == operation.pk
    assert (Attempt.objects.get().device, Node.objects.get().device) == ("GPU-1", "b-GPU-1")
    held = {each.worker_id: each.held for each in queue_status.workers()}
    assert held["b"] == {"b-GPU-1"}


def test_machines_with_and_without_gpus_do_not_compute_together():
    register("a")
    register("b", capabilities={"gpus": [{"id": "GPU-1", "memory_bytes": 80 * GB}]})
    operation = submitted(2, device="auto")
    assert claim("a") is None
    assert blocked(operation) == "Needs 2 workers that all have GPUs, or all have none; 1 does."
    small = submitted(1)
    assert claim("a") == small.pk  # it makes no room for what it cannot compute
    claims.finish(services.get(small.pk), State.COMPLETED, outcome=Attempt.Outcome.COMPLETED)
    register("c")
    assert claim("a") == operation.pk
    assert Node.objects.get().worker_id == "c"


def test_workers_over_http_and_of_other_labels_take_no_part():
    register("a")
    register("far", worker_type="other")
    registry.asks_for_work(worker_id="far", kinds=["loop"], labels=["l"])
    operation = submitted(2)
    assert claim("a") is None
    assert blocked(operation) == "Needs 2 workers that have a slot each, not over HTTP; 1 does."
    labelled = submitted(2, queue="l")
    assert blocked(labelled) == "Needs 2 workers that have the label l; 1 does."
    over_http = replace(offer(1), is_node=False)
    assert claims.claim(worker_id="far", host="far", offer=over_http) is None


def test_it_waits_for_further_workers_where_some_are_busy(settings):
    for name in "abc":
        register(name)
    busy = submitted(1)
    assert claim("c") == busy.pk
    operation = submitted(3, min_nodes=2)
    assert claim("a") is None
    Operation.objects.filter(pk=operation.pk).update(queued_at=seconds_from_now(-31))
    assert claim("a") == operation.pk
    assert Attempt.objects.get(operation=operation).num_nodes == 2


def test_it_does_not_wait_for_workers_that_there_are_not():
    register("a")
    register("b")
    operation = submitted(4, min_nodes=2)
    assert claim("a") == operation.pk


def test_small_operations_wait_for_one_that_needs_their_workers():
    register("a", 2)
    register("b", 2)
    register("c", 2)
    running = [submitted(1), submitted(1)]
    assert [claim("a", 2), claim("b", 2)] == [each.pk for each in running]
    operation, small = submitted(2, processes=2), submitted(1)
    assert claim("a", 1, of=2) is None  # it makes room, as it lacks the fewest slots
    assert claim("c", 2) is None
    assert claim("b", 1, of=2) == small.pk
    claims.finish(services.get(running[0].pk), State.COMPLETED, outcome="completed")
    assert claim("a", 2) == operation.pk
    assert [each.worker_id for each in Node.objects.all()] == ["c"]


def test_where_there_are_too_few_workers_none_makes_room():
    register("a", 2)
    submitted(2)
    small = submitted(1)
    assert claim("a", 1, of=2) == small.pk


@pytest.mark.parametrize("number", [2, 8])
def test_a_worker_makes_room_where_an_earlier_operation_cannot_start(number):
    """Of 8 workers there are too few; of 2, too few have the label."""
    register("a", 2)
    register("b", 1)
    Worker.objects.filter(pk="a").update(labels=["l"])
    submitted(number, queue="l")
    operation = submitted(1, processes=2)
    submitted(1)
    assert claim("a", 1, of=2, labels=["l"]) is None
    assert claim("a", 2, labels=["l"]) == operation.pk


def test_operations_that_cannot_start_hide_no_later_one(monkeypatch):
    monkeypatch.setattr(gangs, "MAX_LOOKED_AT", 1)
    register("a")
    register("b")
    submitted(3)
    operation = submitted(2)
    assert claim("a") == operation.pk


def test_a_worker_that_could_not_compute_it_leads_no_others():
    """By its row it is draining, which its process does not know yet."""
    operation = submitted(2, device="auto")
    common = {"is_node": True, "max_processes": 2}
    a = ServingWorker("a", gpus=GPUS, is_draining=True, **common)
    b, c = ServingWorker("b", gpus=GPUS, **common), ServingWorker("c", **common)
    assert gangs.others(operation, "a", [a, b, c]) is None
    assert gangs.partners(operation, "a", [a, b, c]) == [b]  # those of its kind
    assert gangs.others(operation, "a", [replace(a, is_draining=False), b, c]) == [b]


def test_workers_of_other_versions_take_no_part():
    """The leader would refuse them, attempt after attempt."""
    older, newer = ({"trainops": each, "torch": "2.13"} for each in ("0.1.0", "0.2.0"))
    register("a", capabilities=older)
    register("b", capabilities=newer)
    operation = submitted(2)
    assert claim("a") is None and claim("b") is None
    assert blocked(operation) == (
        "Needs 2 workers with the same versions "
        "(trainops 0.1.0, torch 2.13; trainops 0.2.0, torch 2.13); 1 does."
    )
    register("c", capabilities=newer)
    assert blocked(operation) == "A worker claims it shortly."
    assert claim("a") is None
    assert claim("b") == operation.pk
    assert [each.worker_id for each in Node.objects.all()] == ["c"]


def test_a_worker_that_is_stopping_is_no_node(worker_process):
    register("a")
    register("b")
    operation = submitted(2)
    worker_process.close()
    wait_until(Worker.objects.filter(pk="b").exclude(ends_at=None).exists)
    assert claim("a") is None
    assert "have the time for its first checkpoint; 1 does" in blocked(operation)
    register("b")  # the next process of this name
    assert claim("a") == operation.pk


def test_a_worker_that_leaves_refuses_what_it_was_promised(worker_process, monkeypatch):
    monkeypatch.setattr(nodes, "LOOK_SECONDS", 0)
    register("a")
    register("b")
    operation = submitted(2)
    assert claim("a") == operation.pk
    gathering = nodes.Gathering(services.get(operation.pk))
    gathering.group()
    assert gathering.problem() == ""
    worker_process.leave()
    assert gathering.problem() == "the node b did not begin: its worker is stopping"
    assert gathering.reason == Reason.SHUTDOWN


def test_a_worker_that_cannot_refuse_does_not_say_that_it_is_registered(
    worker_process, monkeypatch, caplog
):
    def away(worker_id):
        raise OperationalError("the database is away")

    monkeypatch.setattr(nodes, "refuse_pending", away)
    register("b")
    worker_process.leave()
    assert not Worker.objects.filter(pk="b").exists()
    assert caplog.messages[-1] == (
        "could not refuse the nodes that were not started: the database is away"
    )


@pytest.fixture
def worker_process(monkeypatch):
    """That of worker b, whose watchdog does not end this process."""
    runtime = work.WorkerRuntime()
    runtime.worker_id, runtime.slots = "b", Slots(count=1)
    process = WorkerProcess(runtime)
    monkeypatch.setattr(process, "_watchdog", lambda seconds: None)
    return process


class Machine(threading.Thread):
    """A worker that claims, takes part, and finishes what it leads."""

    def __init__(self, name, slots, seed, is_over):
        super().__init__(daemon=True)
        self.worker_id, self.rng, self.is_over = name, random.Random(seed), is_over  # noqa: S311
        self.slots = Slots(count=slots)
        self.running = []  # of what it holds: the operation it leads, or its node
        self.problem = None

    def run(self):
        try:
            while not self.is_over.is_set():
                self._look()
        except Exception as error:  # noqa: BLE001 - of the test
            self.problem = error
        finally:
            connection.close()

    def _look(self):
        if (node := nodes.take(self.worker_id, "", self.slots)) is not None:
            self._hold(nodes.running(node, now()))
            return
        for held in self.slots.all():
            if held.node is not None and not gangs.held(self.worker_id, [held.node]):
                self._release(held)
            elif held.node is None and self.rng.random() < 0.3:
                mine = services.get(held.operation_id)
                claims.finish(mine, State.COMPLETED, outcome=Attempt.Outcome.COMPLETED)
                self._release(held)
        num_free = self.slots.count - self.slots.num_taken
        given = offer(num_free, of=self.slots.count)
        found = claims.claim(worker_id=self.worker_id, host="", offer=given)
        if found is not None:
            self._hold(
                RunningAttempt(found.pk, found.attempt, "", now(), processes=found.processes)
            )

    def _hold(self, held):
        self.slots._held[held.operation_id, held.attempt] = held
        assert self.slots.num_taken <= self.slots.count, "a slot was promised twice"

    def _release(self, held):
        del self.slots._held[held.operation_id, held.attempt]


@pytest.mark.slow
@pytest.mark.parametrize("seed", some_of(range(6), every=3))
def test_gangs_that_compete_are_all_computed_and_no_slot_is_promised_twice(seed):
    """Four workers at once; more small operations come until all large ones are done."""
    rng = random.Random(seed)  # noqa: S311
    sizes = {"a": 1, "b": 2, "c": 2, "d": 3}
    for name, slots in sizes.items():
        register(name, slots)
    wanted = [(2, 1), (2, 2), (3, 2), (4, 1), (2, 2)]
    large = [submitted(number, processes=processes).pk for number, processes in wanted]
    is_over = threading.Event()
    machines = [Machine(name, slots, seed, is_over) for name, slots in sizes.items()]
    for each in machines:
        each.start()

    def are_done():
        if Operation.objects.due().count() < 8:
            submitted(1, processes=rng.choice([1, 1, 2]))
        assert not any(each.problem for each in machines), [each.problem for each in machines]
        found = Operation.objects.filter(pk__in=large, state=State.COMPLETED)
        return found.count() == len(large)

    try:
        wait_until(are_done)
    finally:
        is_over.set()
        for each in machines:
            each.join()
    for (number, _), pk in zip(wanted, large, strict=True):
        (attempt,) = Attempt.objects.filter(operation_id=pk)
        assert attempt.num_nodes == number


def test_a_worker_that_is_stopping_says_so_to_the_leader():
    operation = led_by("a")
    slots = Slots(count=1)
    slots.close(gone_in_seconds=10)
    assert nodes.take("b", "host-b", slots) is None
    gathering = nodes.Gathering(operation)
    assert gathering.group().num_nodes == 2
    assert gathering.problem() == "the node b did not begin: its worker is stopping"
    assert gathering.reason == "SHUTDOWN"  # the restart is not counted


def test_a_node_is_started_once_and_where_its_slots_are_free():
    led_by("a")
    slots = Slots(count=1)
    with slots.hold(RunningAttempt("other", 1, "", now())):
        assert nodes.take("b", "host-b", slots) is None
    assert nodes.take("b", "host-b", slots).host == "host-b"
    assert nodes.take("b", "host-b", slots) is None


def test_a_node_ends_with_the_attempt():
    operation = led_by("a")
    (pk,) = Node.objects.values_list("pk", flat=True)
    assert gangs.held("b", [pk]) == {pk}
    claims.restart_or_fail(
        operation, "WORKER_LOST", actor="a", note="", outcome=Attempt.Outcome.LOST
    )
    assert gangs.held("b", [pk]) == set()
    assert nodes.take("b", "host-b", Slots(count=1)) is None


def test_the_leader_writes_where_it_listens_and_hears_of_silent_nodes():
    operation = led_by("a")
    gathering = nodes.Gathering(operation)
    group = gathering.group()
    assert (group.num_nodes, group.token) == (2, Node.objects.get().token)
    gathering.receive(Listening(4711))
    assert (Node.objects.get().leader, Node.objects.get().port) == (group.address, 4711)
    assert gathering.problem() == ""
    gathering.receive(NodeSilent("the node b is silent"))
    assert gathering.problem() == "the node b is silent"


def test_the_address_of_a_node_is_the_configured_one_or_that_towards_the_stores(settings):
    settings.SERVING = replace(settings.SERVING, node_address="10.1.2.3")
    assert own_address() == "10.1.2.3"
    settings.SERVING = replace(settings.SERVING, node_address="")
    settings.BROKER_URL = "redis://127.0.0.1:1/0"
    assert own_address() == "127.0.0.1"


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"db": "127.0.0.1", "cache": "10.0.0.7"}, "10.0.0.7"),
        ({"db": "10.0.0.7", "cache": "10.1.0.7"}, "10.0.0.7"),
        ({"db": "::1"}, "::1"),
        ({}, "127.0.0.1"),
    ],
)
def test_an_address_that_other_machines_reach_goes_first(own, expected, settings, monkeypatch):
    settings.SERVING = replace(settings.SERVING, node_address="")
    monkeypatch.setattr(node_address, "servers", lambda *_: [("db", 1), ("cache", 2)])
    monkeypatch.setattr(node_address, "_address_towards", lambda host, _: own.get(host, ""))
    assert own_address() == expected


@pytest.mark.parametrize(
    ("database", "broker", "expected"),
    [
        ({"HOST": "", "PORT": ""}, "redis+socket:///run/redis.sock", []),
        ({"HOST": "/run/postgresql"}, "rediss://cache:7000/0", [("cache", 7000)]),
        ({"HOST": "db", "PORT": "6000"}, "redis://cache/0", [("db", 6000), ("cache", 6379)]),
    ],
)
def test_the_stores_that_have_network_addresses_say_which_network_is_used(
    database, broker, expected
):
    assert list(servers(database, broker)) == expected


def led_by(name):
    """Return a running operation of the workers a and b."""
    register("a")
    register("b")
    operation = submitted(2)
    assert claim(name) == operation.pk
    return services.get(operation.pk)


def test_the_smallest_number_of_nodes_is_no_more_than_the_largest():
    with pytest.raises(ConfigError, match=r"min_nodes: got 3; allowed: 1 to nodes \(2\)"):
        submitted(2, min_nodes=3)


def test_the_row_has_the_numbers_of_its_config():
    need = services.get(submitted(4, min_nodes=2).pk).need
    assert (need.nodes, need.min_nodes, need.processes) == (4, 2, 1)
    assert rows.submitted().need.nodes == 1
