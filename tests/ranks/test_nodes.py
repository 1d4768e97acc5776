"""Several nodes compute what one machine computes; the loss of one ends the attempt everywhere."""

import os
import signal
import socket
import sys
from contextlib import suppress

import psutil
import pytest
import torch

from apps.operations.attempts import children
from apps.operations.attempts.children import ForkServer
from tests.ranks.nodes import SILENCE_SECONDS, NodeAttempts
from tests.ranks.oracle import train_plainly
from tests.ranks.processes import run_ranks
from tests.ranks.running import CONFIG, Attempts, require_same_end
from tests.ranks.test_exactness import state_of
from tests.ranks.test_sharding import DIVIDED
from tests.thinning import some_of
from tests.waiting import has_ended, wait_until
from trainops.files.checks import Severity
from trainops.files.verify import verify
from trainops.kind import KINDS
from trainops.process.forking import fork
from trainops.process.node_protocol import MAX_LINE_BYTES
from trainops.process.protocol import Failed, Stopped, Succeeded
from trainops.runtime.checkpoint.store import Candidate, CheckpointStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
SAVING = {"checkpoint": {"every_steps": 3, "every_seconds": 1e9, "self_check": False}}
FORGED = b'NodeProof {"node":1,"host":"x","nonce":"","mac":"00","versions":{}}\n'
LONG = {"parameters": {"epochs": 5000}}


@pytest.fixture
def attempts(forkserver, tmp_path):
    """Return the attempts of an operation of two nodes with one process each."""
    return NodeAttempts(forkserver, tmp_path, {"processes": 1})


def at_step(number, act):
    """Return what calls `act` once, at a report of this step or a later one."""
    calls = []

    def report(child, progress):
        if progress.step >= number and not calls:
            calls.append(number)
            act(child)

    return report


@pytest.mark.parametrize(("nodes", "processes"), [(2, 1), (2, 2), (3, 1)])
def test_nodes_train_as_one_machine_does(nodes, processes, attempts, undisturbed):
    attempts.config, attempts.addresses = {"processes": processes}, ("127.0.0.1",) * nodes
    assert isinstance(attempts.attempt(), Succeeded), attempts.output
    require_same_end(attempts, undisturbed(nodes * processes))
    assert all(each.exit_code == 0 for each in attempts.nodes)


def test_two_nodes_train_as_a_plain_loop_of_ddp_does(attempts, tmp_path):
    run_ranks(train_plainly, tmp_path)
    expected = torch.load(tmp_path / "rank0.pt", weights_only=True)  # noqa: TID251
    assert isinstance(attempts.attempt(parameters={"is_plain": True}), Succeeded)
    state = state_of(attempts.committed[-1])
    assert all(torch.equal(state["model"][name], each) for name, each in expected["model"].items())


def test_a_divided_model_is_trained_over_nodes_as_on_one_machine(attempts, forkserver, tmp_path):
    attempts.config = DIVIDED | {"processes": 1}
    one_machine = Attempts(forkserver, tmp_path / "one", DIVIDED | {"processes": 2})
    assert isinstance(one_machine.attempt(), Succeeded)
    assert isinstance(attempts.attempt("kill 1 5"), Failed)
    assert isinstance(attempts.attempt(), Succeeded)
    assert attempts.receipts[-1].step > 0 and attempts.receipts[-1].exact
    require_same_end(attempts, one_machine)


def test_a_checkpoint_of_several_of_the_allowed_nodes_is_verified_and_forked(attempts, tmp_path):
    """Loaders with an iterable dataset continue only with as many ranks; one is allowed, too."""
    attempts.config = CONFIG | {
        "recipe": "streamed", "parameters": {"several": True},
        "processes": 1, "nodes": 3, "min_nodes": 1,
    }  # fmt: skip
    assert isinstance(attempts.attempt("stop 0 3"), Stopped), attempts.output
    (source,) = attempts.committed
    load = verify(source.path).checks[-1]
    assert load.name == "load" and load.level is Severity.OK, load
    config = KINDS["loop"].parse_config(attempts.config)
    made = fork(
        KINDS["loop"], source=Candidate(source.path, source.digest), before=config, after=config,
        inputs={}, store=CheckpointStore(tmp_path / "fork", identity={"attempt": 0}),
    )  # fmt: skip
    assert made.step == source.step
    attempts.addresses = attempts.addresses[:1]
    ended = Attempts.attempt(attempts)
    assert isinstance(ended, Failed) and "had 2 ranks; now there are 1" in ended.message, ended


@pytest.fixture
def blind(tmp_path, monkeypatch):
    """Return a forkserver whose children do not see the directory of checkpoints."""
    (tmp_path / "checkpoints").mkdir()
    program = tmp_path / "python"
    hide = f'mount -t tmpfs tmpfs "{tmp_path}/checkpoints" && exec "{sys.executable}" "$@"'
    program.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{hide}' sh \"$@\"\n")
    program.chmod(0o700)
    with monkeypatch.context() as patched:
        patched.setattr(children.sys, "executable", str(program))
        forkserver = ForkServer()
        forkserver.open()
        wait_until(lambda: forkserver.is_ready)
    yield forkserver
    forkserver.close()


@pytest.mark.exhaustive
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to hide a directory")
def test_a_node_without_the_directory_of_checkpoints_gets_their_files(
    blind, attempts, undisturbed, tmp_path
):
    attempts.root, attempts.of_nodes = tmp_path / "checkpoints", blind
    assert isinstance(attempts.attempt("stop 0 5"), Stopped)
    node = attempts.nodes[0]
    assert isinstance(attempts.attempt(), Succeeded)
    assert attempts.receipts[-1].step >= 5 and attempts.receipts[-1].exact
    assert not node.directory.exists()  # the copy was in it
    require_same_end(attempts, undisturbed(2))


@pytest.mark.parametrize("step", some_of(range(1, 13), every=6))
def test_a_stop_changes_nothing(step, attempts, undisturbed):
    assert isinstance(attempts.attempt(f"stop 0 {step}"), Stopped)
    assert isinstance(attempts.attempt(), Succeeded)
    assert attempts.receipts[-1].step >= step and attempts.receipts[-1].exact
    require_same_end(attempts, undisturbed(2))


def test_the_death_of_a_rank_of_another_node_changes_nothing(attempts, undisturbed):
    attempts.config |= SAVING
    ended = attempts.attempt("kill 1 5")
    assert isinstance(ended, Failed) and ended.code == "PROCESS_KILLED"
    assert ended.message == "rank 1 on host-1 ended by SIGKILL"
    assert isinstance(attempts.attempt(), Succeeded)
    require_same_end(attempts, undisturbed(2))


def test_an_exception_of_another_node_is_that_of_the_attempt(attempts):
    ended = attempts.attempt("raise 1 3")
    assert isinstance(ended, Failed) and ended.code == "JOB_ERROR"
    assert ended.message == "rank 1: ValueError: boom"
    assert "Traceback of rank 1" in ended.traceback and "disturb" in ended.traceback


def test_a_rank_of_another_node_that_hangs_is_named_with_its_stack(attempts):
    ended = attempts.attempt("sleep 1 3", limits={"stall_timeout_seconds": 4.0})
    assert isinstance(ended, Failed) and ended.code == "STALLED"
    assert ended.message == "rank 1 on host-1 did not respond within 3.6 s"
    assert "in disturb" in attempts.output


def test_what_another_node_prints_is_in_the_log_with_its_rank(attempts):
    attempts.attempt("print 1 3")
    assert attempts.output == "[rank 1] hello\n[rank 1] there\n"


@pytest.mark.exhaustive
def test_a_lightning_module_knows_its_node(attempts, forkserver, tmp_path):
    attempts.config = {"recipe": "ranked_lit", "monitor": "val_loss", "processes": 2}
    assert isinstance(attempts.attempt("place 3 2"), Succeeded)
    assert "[rank 3] 1 2 2 1\n" in attempts.output
    one_machine = Attempts(forkserver, tmp_path / "one", attempts.config | {"processes": 4})
    assert isinstance(one_machine.attempt(), Succeeded)
    require_same_end(attempts, one_machine)


def test_a_node_that_is_killed_is_named_and_changes_nothing(attempts, undisturbed):
    attempts.config |= SAVING
    attempts.on_report = at_step(4, lambda _: attempts.nodes[0].kill())
    ended = attempts.attempt()
    assert isinstance(ended, Failed) and ended.code == "WORKER_LOST"
    assert ended.message == "the node host-1 (rank 1) has ended"
    attempts.on_report = None
    assert isinstance(attempts.attempt(), Succeeded)
    require_same_end(attempts, undisturbed(2))


def test_a_frozen_node_is_noticed_and_ends_itself_as_it_wakes(attempts):
    frozen = []

    def freeze(_):
        node = psutil.Process(attempts.nodes[0].pid)
        frozen.extend([node, *node.children(recursive=True)])
        for each in frozen:
            each.suspend()

    attempts.on_report = at_step(4, freeze)
    attempts.when_silent = lambda: [each.resume() for each in frozen]
    assert attempts.attempt(**LONG) == -signal.SIGKILL  # by its supervisor, the test
    assert attempts.silent == [
        f"the node host-1 (rank 1) did not respond within {SILENCE_SECONDS:g} s"
    ]
    assert attempts.ended_by_themselves and all(has_ended(each) for each in frozen)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_nodes_end_themselves_without_their_leader(how, attempts):
    seen = []

    def strike(child):
        node = psutil.Process(attempts.nodes[0].pid)
        seen.extend([node, *node.children(recursive=True)])
        os.killpg(child.pid, how)
        wait_until(lambda: all(has_ended(each) for each in seen), 40)  # before their grants end
        child.kill()

    attempts.on_report = at_step(4, strike)
    assert attempts.attempt(**LONG) == -signal.SIGKILL
    assert len(seen) == 2


def test_a_node_with_another_token_is_refused(attempts):
    attempts.tokens, attempts.join_seconds = {1: "00" * 32}, 2.0
    ended = attempts.attempt()
    assert isinstance(ended, Failed) and ended.code == "WORKER_LOST"
    assert ended.message == "rank 1 did not begin: node 1 did not connect within 2 s"
    assert "Hangup" in attempts.node_output and attempts.nodes[0].exit_code == 70


def test_a_leader_that_does_not_know_the_secret_is_not_followed(attempts, forkserver):
    """What listens at the port sends the right messages, but no proof."""
    attempts.start = attempts._start({}, {})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        attempts._join(1, listener.getsockname()[1])
        end, _ = listener.accept()
        with end:
            end.sendall(b'NodeChallenge {"nonce":"aa"}\n')
            assert end.recv(4096).startswith(b"NodeProof ")
            end.sendall(b'LeaderProof {"mac":"00","store_port":1}\n')
            assert end.recv(4096) == b""  # it sends nothing more
    attempts.end_nodes()
    assert attempts.nodes[0].exit_code == 70
    assert "does not know the token of this attempt" in attempts.node_output


def test_strangers_at_the_port_of_the_leader_are_refused(attempts, undisturbed):
    received = []

    def knock(port):
        for line in (FORGED, b"\0" * MAX_LINE_BYTES, b"Beat {}\n"):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(line)
                received.append(answer_to(stranger))

    attempts.before_joining = knock
    assert isinstance(attempts.attempt(), Succeeded)
    assert all(
        each.startswith(b"NodeChallenge ") and b"LeaderProof" not in each for each in received
    )
    require_same_end(attempts, undisturbed(2))


def answer_to(stranger):
    """Return all that the leader sends until it closes the connection."""
    found = b""
    with suppress(ConnectionResetError):
        while some := stranger.recv(4096):
            found += some
    return found


def test_the_leader_listens_at_its_own_address_only(attempts):
    attempts.addresses = ("127.0.0.1", "127.0.0.1")
    listening = []

    def look(port):
        child = psutil.Process(attempts.pid)
        listening.extend(
            each.laddr.ip for each in child.net_connections() if each.status == "LISTEN"
        )
        assert port in [each.laddr.port for each in child.net_connections()]

    attempts.before_joining = look
    assert isinstance(attempts.attempt(), Succeeded)
    assert listening == ["127.0.0.1"] * 2  # for the nodes, and torch's store


def test_a_node_at_an_address_that_the_leader_cannot_reach_says_so(attempts):
    attempts.addresses, attempts.join_seconds = ("127.0.0.1", "192.0.2.1"), 2.0
    assert isinstance(attempts.attempt(), Failed)
    assert attempts.nodes[0].exit_code == 70
    assert "OSError: TRAINOPS_NODE_ADDRESS: got 127.0.0.1 for the" in attempts.node_output


def test_an_address_of_another_machine_is_refused(attempts):
    attempts.addresses = ("192.0.2.1", "127.0.0.1")
    assert attempts.attempt() == 70
    assert (
        "the address of this node: got 192.0.2.1; allowed: one of this machine" in attempts.output
    )
    assert attempts.nodes == []
