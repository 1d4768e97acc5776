"""Each protection of an operation, and the test that notices when it is taken out."""

from dataclasses import dataclass

from tests.faults.taking_out import without

SUPERVISOR = "tests/operations/test_supervisor.py"
STOPPING = "tests/operations/test_stopping.py"
CLAIMS = "tests/operations/test_claims.py"
REGISTRY = "tests/workers/test_registry.py"
REPORTS = "tests/workers/test_reports.py"
REMOTE = "tests/checkpoints/test_remote.py"
REMOTE_RUNS = "tests/checkpoints/test_remote_runs.py"
SHARING = "tests/checkpoints/test_sharing.py"
REFERENCES = "tests/engines/test_references.py"
DISTRIBUTED = "tests/federated/test_distributed.py"
CLIENTS = "tests/operations/test_clients.py"
LEDGER = "tests/federated/test_ledger.py"
JOB = "tests/federated/test_job.py"
NPZ = "tests/datasets/test_npz.py"
PACKED = "tests/operations/test_packed_points.py"
SALVAGE = "tests/operations/test_salvage.py"
PLACE = "tests/checkpoints/test_place.py"
NEIGHBOURS = "tests/workers/test_neighbours.py"
DIRECTORY = "tests/directories/test_directory.py"
PREFIX = "tests/buckets/test_prefixes.py"


@dataclass(frozen=True, slots=True)
class Protection:
    name: str
    function: str  # package.module:Class.function
    protected: str  # a run of its tokens: see `taking_out`
    bare: str  # what stands there instead; nothing: `pass`
    test: str  # what must fail without it

    @property
    def path(self) -> str:
        return self.function.partition(":")[0].replace(".", "/") + ".py"

    def taken_out_of(self, source: str) -> str:
        """Return the module's source without it. Raises LookupError where it is not there."""
        return without(source, self.function.partition(":")[2], self.protected, self.bare)


PROTECTIONS = [
    Protection(
        "a state is left only for one that the table of moves allows",
        "apps.operations.queryset:OperationQuerySet.move",
        "row = self.filter(state__in=sources_of(to)).select_for_update().first()",
        "row = self.select_for_update().first()",
        "tests/operations/test_lifecycle.py::test_the_table_of_moves_is_what_the_database_does",
    ),
    Protection(
        "every write of an attempt is under the fence",
        "apps.operations.queryset:OperationQuerySet.owned",
        "return self.filter(pk=operation_id, attempt=attempt, state=State.RUNNING)",
        "return self.filter(pk=operation_id)",
        f"{SUPERVISOR}::test_a_ghost_stops_itself_and_changes_nothing",
    ),
    Protection(
        "only what is owned is renewed",
        "apps.operations.scheduling.claims:renew",
        'return wanted & set(mine.values_list("pk", "attempt"))',
        "return wanted",
        f"{CLAIMS}::test_renewing_tells_which_attempts_are_still_owned",
    ),
    Protection(
        "the kernel kills a child whose parent died",
        "trainops.process.kinship:die_with",
        "_prctl(PR_SET_PDEATHSIG, signal.SIGKILL)",
        "pass",
        f"{SUPERVISOR}::test_children_die_with_the_forkserver_while_their_worker_is_frozen",
    ),
    Protection(
        "the end of the wire ends a child",
        "trainops.process.supervisor_client:SupervisorClient._listen",
        "except Hangup:\n_end_everything()",
        "except Hangup:\n                return",
        f"{SUPERVISOR}::test_a_child_whose_supervisor_hangs_up_ends_itself",
    ),
    Protection(
        "a timer of the kernel ends a child that is granted no more time",
        "trainops.process.supervisor_client:SupervisorClient._granted",
        "signal.setitimer(signal.ITIMER_REAL, max(0.001, until - now()))",
        "pass",
        f"{SUPERVISOR}::test_a_child_that_is_granted_no_more_time_ends_itself",
    ),
    Protection(
        "a supervisor ends an attempt whose lease it cannot renew",
        "apps.operations.attempts.watchdog:Watchdog._outcome_at_once",
        "if now() - running.renewed_at > settings.THRESHOLDS.fence_kill_seconds:",
        "if False:",
        f"{SUPERVISOR}::test_an_attempt_whose_lease_cannot_be_renewed_is_ended_by_its_supervisor",
    ),
    Protection(
        "each attempt leads a process group of its own",
        "trainops.process.forkserver:_ForkServer._become_a_child",
        "os.setsid()",
        "pass",
        f"{SUPERVISOR}::test_nothing_of_the_process_group_is_left",
    ),
    Protection(
        "the temporary files of an ended attempt are removed",
        "apps.operations.attempts.children:Child.close",
        "temporary_files.remove(self.directory)",
        "pass",
        "tests/operations/test_temporary_files.py"
        "::test_a_killed_attempt_with_loader_workers_leaves_no_temporary_files",
    ),
    Protection(
        "a worker that starts leaves the temporary files of running workers alone",
        "apps.operations.attempts.temporary_files:_locked",
        "fcntl.LOCK_EX",
        "fcntl.LOCK_SH",
        "tests/operations/test_temporary_files.py"
        "::test_a_worker_that_starts_removes_the_files_of_killed_workers_only",
    ),
    Protection(
        "the ways to die are distinguished",
        "apps.operations.attempts.outcomes:of_exit",
        "reason = SIGNALS.get(exit_code, Reason.PLATFORM_ERROR)",
        "reason = Reason.PLATFORM_ERROR",
        f"{SUPERVISOR}::test_every_way_to_end_badly_is_distinguished",
    ),
    Protection(
        "leases are judged only by who has seen the database",
        "apps.operations.scheduling.sweeps:DatabaseContact.may_judge",
        "return has_seen_a_lease and not self._is_gap(moment)",
        "return True",
        "tests/operations/test_sweeps.py::"
        "test_leases_are_judged_only_after_a_lease_of_seeing_the_database",
    ),
    Protection(
        "a renewal that comes before the sweep wins",
        "apps.operations.scheduling.sweeps:_recover",
        "silent = Operation.objects.silent().filter(pk=operation.pk, attempt=operation.attempt)",
        "silent = Operation.objects.filter(pk=operation.pk)",
        "tests/operations/test_sweeps.py::test_a_renewal_that_comes_first_wins",
    ),
    Protection(
        "crashes without progress come to an end",
        "apps.operations.scheduling.restarts:after",
        "if restarts_used >= budget:",
        "if False:",
        "tests/operations/test_restarts.py::test_it_gives_up_after_n_crashes_without_progress",
    ),
    Protection(
        "a worker that must go saves first",
        "apps.operations.attempts.watchdog:Watchdog._directive",
        "is_unwanted = self.running.must_be_gone_at is not None or self.running.is_to_leave",
        "is_unwanted = self.running.is_to_leave",
        f"{SUPERVISOR}::test_a_shutdown_saves_and_hands_back_without_penalty",
    ),
    Protection(
        "a cancel that is not obeyed is enforced",
        "apps.operations.attempts.watchdog:Watchdog._is_overdue",
        "return self.sent == directive and time.monotonic() - self._sent_at > seconds",
        "return False",
        f"{STOPPING}::test_a_cancel_of_a_start_that_hangs_is_bounded",
    ),
    Protection(
        "what was asked to stop is not started again",
        "apps.operations.scheduling.claims:_decide",
        'went_on = owned.filter(stop_requested="").move(',
        "went_on = owned.move(",
        f"{STOPPING}::test_a_cancel_of_what_a_dead_worker_ran_is_carried_out_by_the_sweep",
    ),
    Protection(
        "what an absent database did not take is adopted",
        "apps.operations.attempts.preparation:Preparation._prepare",
        "            recovery_records.recover(self.writer, oldest)\n",
        "            pass\n",
        f"{SUPERVISOR}::test_what_an_absent_database_could_not_commit_is_adopted_by_the_next_owner",
    ),
    Protection(
        "a child that nobody renews saves by itself",
        "trainops.process.supervisor_client:SupervisorClient._mind_the_time",
        "if now() > self._save_at and self.directive is Directive.PROCEED:",
        "if False:",
        f"{SUPERVISOR}::test_what_an_absent_database_could_not_commit_is_adopted_by_the_next_owner",
    ),
    Protection(
        "a last save does not wait for the commit of the one before",
        "trainops.runtime.checkpointer:Checkpointer.save",
        "                saving.until_written()",
        "                saving.join()",
        "tests/engines/test_attempt.py::"
        "test_a_stop_stages_its_own_although_the_one_before_is_not_committed",
    ),
    Protection(
        "what may be in the writing is not cleaned up",
        "apps.checkpoints.cleaning:Unowned.__init__",
        "owners().attempts_at_work(operation_id)",
        "{}",
        "tests/checkpoints/test_services.py::"
        "test_what_an_attempt_may_be_writing_stays_whatever_the_clock_says",
    ),
    Protection(
        "what may be adopted is not cleaned up",
        "apps.operations.checkpoint_owners:Operations.attempts_at_work",
        'begun = Max("attempts__number", filter=Q(attempts__receipt__isnull=False), default=0)',
        'begun = Max("attempt")',
        "tests/checkpoints/test_services.py::"
        "test_what_the_next_attempt_may_adopt_stays_until_it_has_begun",
    ),
    Protection(
        "a superseded attempt is stopped",
        "apps.workers.reports:sync",
        "        if key in owned\n        else AttemptOrder",
        "        if True\n        else AttemptOrder",
        f"{REGISTRY}::test_a_superseded_attempt_is_asked_to_stop",
    ),
    Protection(
        "a lost message is sent again",
        "apps.operations.scheduling.sweeps:send_hints",
        "    for each in hinted:\n        dispatch(*each)\n",
        "    for each in hinted:\n        pass\n",
        "tests/operations/test_sweeps.py::test_a_lost_message_is_sent_again_at_growing_intervals",
    ),
    Protection(
        "what is more urgent goes first",
        "apps.operations.scheduling.claims:claim",
        "candidate = candidates.next_first().first()",
        'candidate = candidates.order_by("queued_at").first()',
        f"{CLAIMS}::test_the_highest_priority_goes_first_then_the_longest_waiting",
    ),
    Protection(
        "an operation is taken only by a worker that has what it needs",
        "apps.operations.scheduling.claims:claim",
        "waiting = candidates = available(worker_id, offer)",
        "waiting = candidates = Operation.objects.due()",
        f"{CLAIMS}::test_an_operation_that_needs_a_gpu_waits_for_a_worker_that_has_one",
    ),
    Protection(
        "an operation of several processes is not overtaken for ever",
        "apps.operations.scheduling.reservations:available",
        "if reserved_for is None:",
        "if True:",
        "tests/operations/test_processes.py::"
        "test_a_worker_makes_room_for_an_operation_of_several_processes",
    ),
    Protection(
        "each process has a slot",
        "apps.operations.scheduling.slots:Slots.free_slots",
        "self.count - sum(each.processes for each in in_slots)",
        "self.count - len(in_slots)",
        "tests/operations/test_processes.py::test_each_process_holds_a_slot_and_a_gpu",
    ),
    Protection(
        "ranks of other weights are refused",
        "trainops.process.ranks:RankGroup.state_dict",
        "rank_state.require_equal(own, captured.fingerprints, rank.number, job.step)",
        "pass",
        "tests/ranks/test_ends.py::test_a_rank_with_other_weights_is_refused_by_name",
    ),
    Protection(
        "each rank has its own state back",
        "trainops.process.rank_process:RankProcess._restore",
        "rank_state.load_rank_part(self.job, own)",
        "pass",
        "tests/ranks/test_exactness.py::test_a_stop_changes_nothing",
    ),
    Protection(
        "the first error of all ranks is that of the attempt",
        "trainops.runtime.loop:run",
        "first = others.origin(error.__cause__ or error)",
        "first = error.__cause__ or error",
        "tests/ranks/test_ends.py::test_an_exception_of_a_rank_is_that_of_the_attempt",
    ),
    Protection(
        "a GPU is promised to one operation",
        "apps.operations.scheduling.slots:Slots.free_slots",
        "for each in self.devices if each.id not in held)",
        "for each in self.devices)",
        "tests/operations/test_slots.py::"
        "test_operations_that_start_at_once_get_a_gpu_each_and_the_cpu_ones_none",
    ),
    Protection(
        "a restart waits for its pause",
        "apps.operations.queryset:OperationQuerySet.due",
        "return self.waiting().filter(Q(not_before=None) | Q(not_before__lte=DatabaseNow()))",
        "return self.waiting()",
        f"{CLAIMS}::test_a_restarted_operation_is_left_alone_until_its_pause_is_over",
    ),
    Protection(
        "what crashes on two hosts is not tried on a third",
        "apps.operations.scheduling.poison:own_fault",
        "if len({host for _, host, _, _ in deaths if host}) < HOSTS:",
        "if True:",
        f"{REPORTS}::test_what_crashes_on_two_hosts_is_its_own_fault_and_says_where_and_how",
    ),
    Protection(
        "a worker that is to drain takes nothing more",
        "apps.workers.runtime:WorkerProcess._say_alive",
        "self.runtime.slots.drain(response.is_draining)",
        "pass",
        "tests/workers/test_runtime.py::test_a_drain_that_an_admin_requested_reaches_the_slots",
    ),
    Protection(
        "who waits for others leaves a worker that is to drain",
        "apps.operations.scheduling.slots:Slots.drain",
        "held.is_to_leave = is_draining and not held.takes_slot",
        "pass",
        f"{CLIENTS}::test_a_drained_worker_does_not_wait_for_operations_that_it_will_not_claim",
    ),
    Protection(
        "a quota does not keep clients from beginning",
        "apps.operations.attempts.committer:CheckpointCommitter.received",
        "if not subtasks.is_awaited(operation, checkpoint.state, checkpoint.step):",
        "if True:",
        f"{CLIENTS}::test_a_quota_does_not_keep_clients_from_beginning",
    ),
    Protection(
        "a night without workers is not the clients' time",
        "apps.operations.subtasks.services:start",
        "        _restart_clock(parent, ids)\n",
        "",
        f"{CLIENTS}::test_a_night_without_workers_is_not_the_clients_time",
    ),
    Protection(
        "a ledger entry of other fields is refused",
        "apps.ledger.services:append",
        "for problem in fields.problems(entry)]",
        "for problem in ()]",
        "tests/operations/test_privacy.py::test_what_is_no_release_is_refused_and_not_left_out",
    ),
    Protection(
        "a server that goes away sends workers away",
        "trainops.http.closing:require_open",
        "    if is_announced():\n        raise ServerClosing",
        "    if False:\n        raise ServerClosing",
        "tests/workers/test_server.py::test_alone_it_says_goodbye_before_its_port_is_closed",
    ),
    Protection(
        "a second signal forces",
        "trainops.launch.program_runner:_Requests.hear",
        "            self.forced = True",
        "            self.forced = False",
        "tests/launch/test_program_runner.py::test_a_second_signal_forces",
    ),
    Protection(
        "the manifest reaches a bucket last",
        "apps.checkpoints.remote:Remote.upload",
        "for file, name in [*names.items(), manifest]:",
        "for file, name in [manifest, *names.items()]:",
        f"{REMOTE}::test_the_manifest_goes_last",
    ),
    Protection(
        "nothing is committed that is not in the bucket",
        "apps.operations.attempts.committer:CheckpointCommitter.add",
        "if remote.bucket() is None:\nself.stored = checkpoint\nelse:",
        "self.stored = checkpoint\n        if False:",
        f"{REMOTE_RUNS}::test_a_machine_with_an_empty_disk_continues_to_the_identical_result",
    ),
    Protection(
        "a checkpoint that the bucket refuses is not committed",
        "apps.operations.attempts.committer:CheckpointCommitter._upload",
        "            self._moved()\n            self._not_stored(checkpoint, error)\n",
        "            self.stored = checkpoint\n",
        f"{REMOTE_RUNS}::test_a_checkpoint_that_cannot_be_uploaded_is_said_and_the_run_continues",
    ),
    Protection(
        "what passes is tried again",
        "apps.checkpoints.trying:retried",
        "if number == policy.tries or not passes(error):",
        "if True:",
        "tests/checkpoints/test_remote_address.py::test_only_what_may_pass_is_tried_again",
    ),
    Protection(
        "what is downloaded is verified",
        "apps.checkpoints.fetching:Fetch.file",
        "with self._named(), open_verified(self.draft, artifact):",
        "with self._named():",
        f"{REMOTE}::test_a_verification_reads_the_bucket_and_not_the_copy",
    ),
    Protection(
        "an older checkpoint is made local where a newer one in the bucket is not whole",
        "apps.operations.attempts.preparation:Preparation._make_one_local",
        "say_corrupted(self.operation, path, error)",
        "raise OSError from error",
        f"{REMOTE_RUNS}::test_what_went_bad_in_the_bucket_is_said_and_an_older_one_is_used",
    ),
    Protection(
        "a bucket that is gone is not taken for files that are gone",
        "apps.checkpoints.s3:S3Objects._missing_or",
        "        is_there = any(found.name == name for found in self.all(name))\n",
        "        is_there = False\n",
        f"{REMOTE}::test_a_bucket_that_is_gone_is_not_taken_for_files_that_are_gone",
    ),
    Protection(
        "an upload does not hold up the supervisor",
        "apps.operations.uploads:Uploads.is_first_stored",
        "        if not self._upload_call.is_done:\n            return False\n",
        "        self._upload_call.join()\n",
        f"{REMOTE_RUNS}::test_steps_go_on_while_an_upload_stalls_and_a_kill_is_heard",
    ),
    Protection(
        "an operation can be cancelled while what it starts from is on its way",
        "apps.operations.attempts.watchdog:Watchdog.outcome",
        "self._ending_by_stall() if is_started else self._ending_before_the_start()",
        "self._ending_by_stall()",
        f"{REMOTE_RUNS}::test_a_cancel_during_the_download_needs_no_patience",
    ),
    Protection(
        "who waits for an upload is not stalled",
        "apps.operations.attempts.supervisor:Supervision._watch",
        "is_waiting = self.committer.is_uploading or self.subtasks.is_waiting",
        "is_waiting = self.subtasks.is_waiting",
        f"{REMOTE_RUNS}::test_what_waits_for_the_upload_of_its_result_is_not_stalled",
    ),
    Protection(
        "what was staged is uploaded although its process is gone",
        "apps.operations.attempts.supervisor:Supervision._follow",
        "            self._finish_uploads()\n",
        "",
        f"{REMOTE_RUNS}::test_what_a_process_staged_before_it_died_is_uploaded_and_committed",
    ),
    Protection(
        "what an attempt left is found after one that could not start",
        "apps.operations.records:Attempt.last_begun",
        "        return newest or 0\n",
        "        return before - 1\n",
        f"{REMOTE_RUNS}::test_a_result_that_cannot_be_uploaded_is_uploaded_by_the_next_attempt",
    ),
    Protection(
        "a copy that an attempt may be reading stays",
        "apps.checkpoints.copies:_removable",
        "committed.discard(start.artifacts_path)",
        "pass",
        f"{REMOTE}::test_a_copy_in_use_and_what_is_only_staged_stay",
    ),
    Protection(
        "the sweep leaves what an attempt may be uploading",
        "apps.checkpoints.cleaning:Unowned.is_old",
        "if stored.attempt >= self.at_work.get(stored.operation_id, math.inf):",
        "if False:",
        f"{REMOTE}::test_the_sweep_leaves_what_is_owned_and_what_may_be_at_work",
    ),
    Protection(
        "a bucket that does not answer corrupts nothing",
        "apps.operations.attempts.supervisor:Supervision._is_prepared",
        "except OSError",
        "except ArithmeticError",
        f"{REMOTE_RUNS}::test_a_bucket_that_does_not_answer_corrupts_nothing",
    ),
    Protection(
        "what changed at any safe point since the last checkpoint is written",
        "trainops.runtime.checkpoint.snapshot:SafePoint.take",
        "self._changed |= changed",
        "self._changed = changed",
        f"{REFERENCES}::test_what_changed_at_a_safe_point_between_is_not_forgotten",
    ),
    Protection(
        "what changed before a save that failed is written with the next",
        "trainops.runtime.checkpoint.store:CheckpointStore.write",
        "self._changed.update(state if changed is None else changed)",
        "self._changed = set(state if changed is None else changed)",
        f"{REFERENCES}::test_what_changed_before_a_save_that_failed_is_not_forgotten",
    ),
    Protection(
        "states are compared bit for bit",
        "trainops.runtime.checkpoint.snapshot:_has_same_bits",
        "return torch.equal(one.view(-1).view(torch.int64), other.view(-1).view(torch.int64))",
        "return torch.equal(one, other)",
        f"{REFERENCES}::test_one_bit_that_differs_is_a_change",
    ),
    Protection(
        "an archive's bytes do not tell which of its segments were read from another",
        "trainops.runtime.checkpoint.stream:Stream.from_archives",
        "[{name: each[name] for name in stream.columns} for each in segments]",
        "segments",
        "tests/engines/test_stream.py::"
        "test_files_do_not_tell_where_a_stream_was_read_in_between[30]",
    ),
    Protection(
        "a stream that began anew is not taken for a continuation",
        "trainops.runtime.checkpoint.stream:Stream.continues",
        "return all(map(_is, self.sealed, earlier.sealed[skipped:]))",
        "return True",
        f"{REFERENCES}::test_a_stream_that_begins_anew_is_written_whole",
    ),
    Protection(
        "after a checkpoint that was not stored the next refers to nothing",
        "trainops.runtime.checkpointer:Checkpointer._commit",
        "            self.store.refer_to_none()\n",
        "            pass\n",
        "tests/engines/test_attempt.py::test_after_a_commit_that_failed_the_next_one_is_whole",
    ),
    Protection(
        "a periodic checkpoint above its owner's quota is refused",
        "apps.operations.attempts.quota:require",
        "    if taken > quota:\n",
        "    if False:\n",
        "tests/operations/test_quota.py::"
        "test_a_periodic_one_that_would_not_fit_is_refused_and_leaves_nothing",
    ),
    Protection(
        "objects that another checkpoint has outlive the one that is deleted",
        "apps.checkpoints.sharing:files_of_no_other",
        "for name, size in files(checkpoints).items() if name not in kept}",
        "for name, size in files(checkpoints).items()}",
        f"{SHARING}::TestInABucket::"
        "test_another_machine_gets_it_whole_although_its_first_owner_was_deleted",
    ),
    Protection(
        "the sweep spares objects that a checkpoint has",
        "apps.checkpoints.cleaning:sweep_unowned",
        "bucket.stored(besides=unowned.shared())",
        "bucket.stored()",
        f"{SHARING}::TestInABucket::test_the_sweep_spares_what_others_have_and_takes_the_rest",
    ),
    Protection(
        "nothing is committed that refers to what was deleted meanwhile",
        "apps.checkpoints.sharing:require_homes",
        "    if gone:\n",
        "    if False:\n",
        f"{SHARING}::TestInABucket::test_a_delete_between_upload_and_commit_refuses_the_commit",
    ),
    Protection(
        "a model that is in use is not deleted",
        "apps.operations.requests.deletion:_require_unused",
        "    if users := ModelUse.active_users_of(operation_id):\n",
        "    if users := []:\n",
        "tests/operations/test_models.py::"
        "test_what_was_trained_is_backtested_and_kept_as_long_as_it_is_needed",
    ),
    Protection(
        "a model is what was committed",
        "apps.operations.attempts.preparation:Preparation._prepare",
        "            inputs.require_committed(each)\n",
        "",
        "tests/operations/test_models.py::test_a_model_whose_bytes_were_changed_is_not_traded",
    ),
    Protection(
        "a backtest goes on with its own model",
        "trainops.kinds.backtest.job:BacktestJob._remembered",
        '        if saved["identity"] != self.identity:\n',
        "        if False:\n",
        "tests/backtest/test_model.py::test_a_state_continues_with_the_model_that_it_was_made_with",
    ),
    Protection(
        "a label that was known only later is not learned from",
        "trainops.kinds.training.recipes.price_direction_model:build",
        "lessons.where(lessons.known_at < first)",
        "lessons.where(lessons.bars < first)",
        "tests/backtest/test_model.py::test_nothing_that_is_validated_on_is_learned_from",
    ),
    Protection(
        "scores are of batches of one size",
        "trainops.market.network:Pipeline._judge",
        "        padded = nn.functional.pad(bars, (0, 0, 0, BATCH_BARS - len(bars)))\n",
        "        padded = bars\n",
        "tests/backtest/test_model.py::"
        "test_a_score_does_not_depend_on_how_many_bars_are_judged_with_it",
    ),
    Protection(
        "a fold is tried once",
        "apps.operations.studies.advancing:advance",
        "if fold.number not in tried | waiting]",
        "if fold.number not in waiting]",
        "tests/operations/test_studies.py::test_a_fold_is_tried_once_however_many_ask",
    ),
    Protection(
        "a study that was stopped submits nothing more",
        "apps.operations.studies.advancing:advance",
        "Study.objects.select_for_update().filter(pk=study_id, stopped_at=None).first()",
        "Study.objects.select_for_update().filter(pk=study_id).first()",
        "tests/operations/test_studies.py::test_a_study_that_was_stopped_tries_nothing_more",
    ),
    Protection(
        "ledger entries are appended under the fence",
        "apps.operations.attempts.report_writer:ReportWriter.append",
        "            self._require_ownership(progressed_at=DatabaseNow())\n            attempt",
        "            attempt",
        "tests/operations/test_privacy.py::test_an_attempt_that_lost_its_operation_writes_nothing",
    ),
    Protection(
        "a release is written down before it is made",
        "trainops.kinds.federated.budget:PrivacyBudget.spend",
        "            self.ledger.record([entry])\n            self._total",
        "            self._total",
        f"{LEDGER}::test_from_an_older_checkpoint_with_other_noise_more_is_spent_never_less",
    ),
    Protection(
        "two different gradients never share their noise",
        "trainops.kinds.federated.noise_accounting:NoiseAccounting.of_epoch",
        "self._data_of(local_training.client), circumstances(),",
        "self._data_of(local_training.client),",
        f"{LEDGER}::test_another_dropout_mask_is_another_release",
    ),
    Protection(
        "a ledger that was rewound refuses the resume",
        "trainops.kinds.federated.budget:PrivacyBudget.thawed",
        "if _what(known.get(entry.noise)) != _what(entry):",
        "if False:",
        f"{LEDGER}::test_a_ledger_that_contradicts_the_checkpoint_is_refused",
    ),
    Protection(
        "clients' updates are masked under user-level privacy",
        "trainops.kinds.federated.server:FederatedServer._done",
        'self._masked[place] = mask({"vector": each.vector}, secrets, number, client)',
        'self._masked[place] = {"vector": each.vector}',
        f"{JOB}::test_clients_in_a_state_are_hidden_from_readers_without_the_secret",
    ),
    Protection(
        "an archive that unpacks to more than it may is refused by what it declares",
        "apps.datasets.tables.npz:Npz.__init__",
        "> limits.max_image_bytes:",
        "> 2**99:",
        f"{NPZ}::test_a_bomb_is_refused_by_what_it_declares",
    ),
    Protection(
        "an array's header and its archive agree on how much there is to read",
        "apps.datasets.tables.npz:_check_size",
        "!= size:",
        "!= size and False:",
        f"{NPZ}::test_a_header_that_lies_about_the_size_is_refused",
    ),
    Protection(
        "arrays have the names that are allowed, and no paths",
        "apps.datasets.tables.npz:_check_names",
        "if name not in files]",
        "if name.rpartition('/')[2] not in files]",
        f"{NPZ}::test_names_with_paths_and_other_files_are_refused",
    ),
    Protection(
        "a resume under the other implementation is exact only where both have equal results",
        "trainops.runtime.receipt:_implementation",
        "restored=is_same, exact=is_same",
        "restored=True, exact=True",
        "tests/engines/test_implementation.py::"
        "test_a_receipt_says_whether_the_implementation_is_the_same",
    ),
    Protection(
        "what each client's optimizer remembers is part of the state of clients at once",
        "trainops.kinds.federated.fast.optimizer:ClientOptimizer.load_state_dict",
        'self.moments = [each.to(self.steps.device, copy=True) for each in state["moments"]]',
        "self.moments = [torch.zeros_like(each) for each in self.moments]",
        "tests/federated/test_batched_clients.py::test_killed_at_each_safe_point_it_ends_exactly",
    ),
    Protection(
        "what a client draws does not follow from who trained before it",
        "trainops.kinds.federated.client:ClientJob.__init__",
        '        self.server.begin_streams("client", subtask.group, subtask.index)\n',
        "",
        f"{DISTRIBUTED}::test_in_whatever_order_clients_end_the_result_is_that_of_one_process",
    ),
    Protection(
        "a client whose round went on without it writes no more",
        "apps.operations.subtasks.services:drop",
        "if _end(subtask.operation, Reason.DROPPED, actor=parent.worker_id):",
        "if True:",
        f"{CLIENTS}::test_what_is_dropped_writes_no_more",
    ),
    Protection(
        "what clients start with stays until they have ended",
        "apps.checkpoints.services:expired",
        "    kept |= owners().needed_by_subtasks(operation_id)\n",
        "",
        f"{CLIENTS}::test_what_clients_begin_with_stays_until_they_have_ended",
    ),
    Protection(
        "a part is known by the model that it begins with",
        "trainops.kinds.federated.client:read_client",
        'if plain.get("round") != progress.number or plain.get("given") != server.identity():',
        "if False:",
        f"{DISTRIBUTED}::test_what_began_with_another_model_is_refused",
    ),
    Protection(
        "a server's end reaches its clients",
        "apps.operations.subtasks.services:operation_ended",
        "settle(parent)",
        "pass",
        f"{CLIENTS}::test_a_cancel_reaches_the_clients_and_a_resume_continues_with_them",
    ),
    Protection(
        "who waits for others keeps nobody out of a slot",
        "apps.operations.placement:need_of",
        "takes_slot=not config.is_distributed,",
        "takes_slot=True,",
        f"{CLIENTS}::test_more_servers_than_slots_do_not_wait_for_each_other",
    ),
    Protection(
        "retention decides where nothing can be committed meanwhile",
        "apps.checkpoints.services:retain",
        "    with transaction.atomic():\n        owners().lock([operation_id])\n",
        "    if True:\n",
        "tests/checkpoints/test_retention.py::test_what_is_committed_while_retention_decides_stays",
    ),
    Protection(
        "clients of user-level privacy are masked in checkpoints of their own, too",
        "trainops.kinds.federated.server:FederatedServer.visiting",
        "return mask(unnamed, self.context.secrets, local_training.number, local_training.client)",
        'return state | {"client": len(self.updates)}',
        f"{DISTRIBUTED}::test_a_clients_own_checkpoint_hides_it_from_readers_without_the_secret",
    ),
    Protection(
        "a weight that two layers share is the server's under both names, whoever trains",
        "trainops.kinds.federated.parameter_layout:ParameterLayout.state_dict",
        "return found | {name: found[other] for name, other in self.tied.items() if name in found}",
        "return found",
        f"{JOB}::test_what_is_not_trained_is_the_checkpoints_and_what_is_tied_stays_so",
    ),
    Protection(
        "what is not trained is the checkpoint's, whatever a recipe draws",
        "trainops.kinds.federated.server:FederatedServer.load_state_dict",
        'layout.freeze(state["model"])',
        "pass",
        f"{JOB}::test_what_is_not_trained_is_the_checkpoints_and_what_is_tied_stays_so",
    ),
    Protection(
        "masks say nothing about what clients have in common",
        "trainops.kinds.federated.masking:mask",
        """stream = secrets.identity(["mask", *place], content)""",
        """stream = secrets.identity(["mask"], content)""",
        f"{JOB}::test_clients_with_something_in_common_do_not_look_so",
    ),
    Protection(
        "random streams of private runs do not tell for whom they began",
        "trainops.kinds.federated.server:FederatedServer.begin_streams",
        "secrets=secrets if config.is_private else None",
        "secrets=None",
        f"{JOB}::test_random_streams_do_not_tell_who_takes_part",
    ),
    Protection(
        "random streams of private runs do not tell how many examples somebody has",
        "trainops.kinds.federated.server:FederatedServer.train",
        "self.begin_streams("
        '"client", local_training.number, local_training.client, local_training.epoch)',
        "pass",
        f"{JOB}::test_random_streams_do_not_tell_how_many_examples_a_person_has",
    ),
    Protection(
        "a step's noise follows from what it is added to",
        "trainops.kinds.federated.local_training:LocalTraining._noise_of",
        "numbers_for(total, ",
        "numbers(",
        f"{LEDGER}::test_other_gradients_have_other_noise_whatever_a_release_is_called",
    ),
    Protection(
        "another recipe's code names another release",
        "trainops.kinds.federated.release_names:settings_and_code",
        "(*config.code(), *here)",
        "here",
        f"{LEDGER}::test_another_recipes_code_names_another_release",
    ),
    Protection(
        "renamed code names the releases of an earlier version as before",
        "trainops.kinds.federated.release_names:_digest_in_names",
        "return dict(FILES.values()).get(digest, digest)",
        "return digest",
        "tests/federated/test_release_names.py::test_settings_and_code_name_releases_as_in_0_1_0",
    ),
    Protection(
        "buffers that no model saves are part of the state",
        "trainops.kinds.federated.parameter_layout:ParameterLayout.__init__",
        "[name for name, _ in model.named_buffers()]",
        "[name for name, _ in model.named_buffers() if name in model.state_dict()]",
        f"{JOB}::test_buffers_that_no_model_saves_are_in_the_state_and_in_no_other",
    ),
    Protection(
        "a checkpoint does not tell of whom something was spent",
        "trainops.kinds.federated.release_log:_combined",
        "columns[name].view(torch.int64) ^ masks[:, place]",
        "columns[name].view(torch.int64)",
        f"{LEDGER}::test_what_was_spent_of_whom_is_sealed_in_checkpoints",
    ),
    Protection(
        "a file that changed since its registration is compared before it is read",
        "trainops.datasets.directory:Directory._check",
        "self._compare(index, range(manifests.num_blocks(status.st_size)))",
        "pass",
        f"{DIRECTORY}::test_a_change_outside_of_the_sample_is_found_when_the_file_is_read",
    ),
    Protection(
        "a sample of a directory is compared before it is used",
        "trainops.datasets.directory:Directory.open",
        "found._verify_sample(seed)",
        "pass",
        f"{DIRECTORY}::test_a_directory_that_changed_is_refused_by_the_names_that_differ",
    ),
    Protection(
        "a copy of an object is compared before it is read",
        "trainops.datasets.copies:Copies.held",
        "if is_here and is_intact():",
        "if is_here:",
        f"{PREFIX}::test_a_damaged_copy_is_downloaded_again",
    ),
    Protection(
        "a copy in use is not evicted",
        "trainops.datasets.copies:_removed",
        "if is_free:",
        "if path:",
        f"{PREFIX}::test_a_copy_in_use_is_not_evicted",
    ),
    Protection(
        "objects written since the registration are compared before a job starts",
        "trainops.datasets.directory:Directory._of_prefix",
        "each.changed_ns >= given.changed_ns for",
        "False for",
        f"{PREFIX}::test_objects_that_differ_are_named_before_the_job_starts",
    ),
    Protection(
        "links do not lead out of the allowed roots",
        "apps.datasets.directories.registration:_allowed",
        "root = Path(path).resolve()",
        "root = Path(path)",
        "tests/datasets/test_directories.py::test_a_path_that_is_not_allowed_is_refused_by_name",
    ),
    Protection(
        "a validation can be stopped",
        "trainops.runtime.loop:_made",
        "job.in_parts = True",
        "pass",
        f"{SALVAGE}::test_a_stop_within_a_long_validation_is_taken_between_its_batches",
    ),
    Protection(
        "an evaluation that is repeated begins with the same random numbers",
        "trainops.runtime.checkpointer:_capture",
        "streams or reproducibility.state_dict()",
        "reproducibility.state_dict()",
        "tests/engines/test_runner.py::"
        "test_an_evaluation_that_draws_is_repeated_with_the_same_numbers",
    ),
    Protection(
        "what is measured again is not counted twice",
        "apps.operations.attempts.report_writer:ReportWriter.restored",
        'checkpoint=receipt["checkpoint"], measured_to=kept',
        'checkpoint=receipt["checkpoint"], measured_to=step',
        f"{SALVAGE}::test_points_of_a_validation_that_is_repeated_are_not_counted_twice",
    ),
    Protection(
        "points of a branch that is continued stand again",
        "apps.operations.attempts.branches:stand",
        "retired.filter(attempt=attempt, step__lte=last).update(retired_by=None)",
        "pass",
        "tests/operations/test_branches.py::test_resumed_from_checkpoints_that_a_person_chooses",
    ),
    Protection(
        "packed points are split where a resume cuts a curve",
        "apps.operations.attempts.branches:_split",
        "packed_points.split(operation_id, attempt, last_step)",
        "pass",
        f"{PACKED}::test_packed_points_give_the_curves_of_all_points",
    ),
    Protection(
        "packed points of a branch that is continued stand again",
        "apps.operations.attempts.branches:stand",
        "packs.filter(attempt=attempt, last_step__lte=last).update(retired_by=None)",
        "pass",
        f"{PACKED}::test_packed_points_give_the_curves_of_all_points",
    ),
    Protection(
        "what is in memory is saved before a kill",
        "apps.operations.attempts.salvage:SalvageDelay.before",
        "self._send(SalvageRequest(TYPES[outcome.reason]))",
        "self._is_over = True",
        f"{SALVAGE}::test_a_step_that_hangs_loses_nothing_but_itself",
    ),
    Protection(
        "what is in memory is saved before a worker must go",
        "apps.operations.attempts.watchdog:Watchdog._is_late",
        "is_late = now() > self._salvage_at",
        "is_late = False",
        f"{SALVAGE}::test_a_validation_that_hangs_is_killed_and_what_was_in_memory_is_saved[shutdown]",
    ),
    Protection(
        "what is in memory is saved before a lease runs out",
        "trainops.process.supervisor_client:SupervisorClient._mind_the_time",
        "if now() > self._salvage_at:",
        "if False:",
        f"{SALVAGE}::test_a_child_whose_lease_is_not_renewed_saves_before_its_time_is_over",
    ),
    Protection(
        "what does not answer is not waited for",
        "apps.operations.attempts.salvage:SalvageDelay.before",
        "self._clock() < self._until and not self._is_over",
        "not self._is_over",
        f"{SALVAGE}::"
        "test_who_does_not_answer_is_killed_all_the_same_and_the_note_says_what_is_left",
    ),
    Protection(
        "the loop does not write over what is being saved from memory",
        "trainops.runtime.checkpoint.snapshot:SafePoint.take",
        "with self.lock:",
        "if True:",
        "tests/engines/test_attempt.py::test_what_is_salvaged_is_not_overwritten_meanwhile",
    ),
    Protection(
        "a note says 'saved' only of what was saved for its end",
        "apps.operations.scheduling.saved:with_what_was_saved",
        "is_for_this_end or newest.step == _last_step(operation)",
        "True",
        f"{STOPPING}::test_an_attempt_whose_lease_ran_out_says_that_nothing_newer_was_saved",
    ),
    Protection(
        "a batch system's signal saves",
        "apps.workers.bootstep:RuntimeStep.start",
        "signal.signal(signal.SIGUSR1, _stop_in_order)",
        "pass",
        "tests/journey/test_journey.py::test_a_worker_asked_to_stop_saves_and_another_continues",
    ),
    Protection(
        "a storage without its identity file is away",
        "apps.installation.storages:look",
        "if found is None and binding.bound_at is None:",
        "if found is None:",
        f"{PLACE}::test_a_storage_that_is_away_marks_nothing_and_is_not_made_anew",
    ),
    Protection(
        "what is missing is unavailable, not corrupted",
        "apps.checkpoints.integrity:mark",
        "health.UNAVAILABLE if problem.is_incomplete else health.CORRUPTED",
        "health.CORRUPTED",
        f"{PLACE}::test_missing_files_are_unavailable_and_a_verification_that_passes_heals_the_row",
    ),
    Protection(
        "a verification that passes heals the row",
        "apps.checkpoints.integrity:_judged",
        "heal(checkpoint.artifacts_path)",
        "",
        f"{PLACE}::test_altered_files_are_corrupted_until_a_verification_passes",
    ),
    Protection(
        "another installation's storage is not ours",
        "apps.installation.storages:look",
        "found != binding.storage_id",
        "False",
        f"{PLACE}::test_taking_over_makes_the_storage_foreign_to_who_had_it",
    ),
    Protection(
        "a whole checkpoint without a row lies in the trash first",
        "apps.checkpoints.cleaning:_sweep",
        "each.is_whole and path not in overdue and not empty_trash",
        "False",
        f"{PLACE}::test_a_whole_checkpoint_without_a_row_goes_days_after_it_was_found",
    ),
    Protection(
        "what is newer than the database is not swept",
        "apps.checkpoints.cleaning:_sweep",
        "not unowned.is_old(each) or unowned.is_newer(each)",
        "not unowned.is_old(each)",
        "tests/operations/test_recovery.py::test_what_is_newer_than_the_database_is_not_swept",
    ),
    Protection(
        "nothing of an ended worker is handed back while its children live",
        "apps.workers.neighbours:_hand_back",
        "pid and not process_identity.group_has_ended(pid)",
        "False",
        f"{NEIGHBOURS}::test_it_waits_until_nothing_of_the_attempt_is_left",
    ),
    Protection(
        "a process is known by more than its number",
        "trainops.process_identity:has_ended",
        'process["started"]',
        "_started(int(process['pid']))",
        f"{NEIGHBOURS}::test_what_a_killed_worker_ran_is_handed_back_before_its_lease_runs_out",
    ),
    Protection(
        "a worker over HTTP that does not ask counts for nothing",
        "apps.workers.models:WorkerQuerySet.taking_work",
        "self.filter(Q(worker_type=LOCAL) | Q(asked_at__gt=DatabaseNow() - window))",
        "self.all()",
        "tests/operations/test_queue_status.py::"
        "test_a_worker_over_http_counts_only_while_it_asks_for_work",
    ),
    Protection(
        "crashes over HTTP are held against no host",
        "apps.workers.attempts_api:ClaimView.post",
        "registry.remote_host(worker_id)",
        "worker.host",
        "tests/workers/test_contract.py::"
        "test_what_crashes_over_http_is_held_against_no_host_that_it_names",
    ),
    Protection(
        "an example that is no number adds nothing",
        "trainops.kinds.federated.clipping:odd_ones",
        "None if bool(is_plain.all()) else ~is_plain",
        "None",
        "tests/federated/test_clipping.py::"
        "test_an_example_that_is_no_number_adds_nothing_and_disturbs_no_other",
    ),
    Protection(
        "an entry of a ledger that was changed is noticed",
        "apps.ledger.verification:require_digest",
        "digest != row.digest or subtask",
        "subtask",
        "tests/operations/test_chain.py::test_a_change_of_any_column_is_found_and_its_entry_named",
    ),
    Protection(
        "a copied number by which entries are found is verified",
        "apps.ledger.verification:require_digest",
        "subtask != (row.subtask_group, row.subtask_index)",
        "False",
        "tests/operations/test_chain.py::test_a_change_of_any_column_is_found_and_its_entry_named",
    ),
    Protection(
        "a value of another type in a ledger is noticed",
        "trainops.runtime.ledger_fields:LedgerFields.texts",
        "not field.is_allowed(value)",
        "False",
        "tests/operations/test_chain.py::test_a_change_of_any_column_is_found_and_its_entry_named",
    ),
    Protection(
        "a ledger that was cut off is noticed",
        "apps.ledger.verification:_require_end",
        "len(found) < known",
        "False",
        "tests/operations/test_chain.py::test_what_is_missing_moved_or_cut_off_is_found",
    ),
    Protection(
        "the tighter accountant is asked only what it can answer",
        "trainops.kinds.federated.prv_accountant:measured",
        "is_far or num_points(used, delta) > MOST_POINTS",
        "False",
        "tests/federated/test_references.py::"
        "test_the_tighter_accountant_is_asked_only_as_far_as_its_work_is_bounded",
    ),
    Protection(
        "orders at a close are sized by the prices of that close",
        "trainops.kinds.backtest.core.matching:fill_market_orders",
        "book.marks[symbol] = prices[symbol]",
        "",
        "tests/backtest/test_several.py::"
        "test_a_portfolio_resumed_at_any_bar_ends_as_one_that_was_not",
    ),
    Protection(
        "what rounding leaves of a trade is closed",
        "trainops.kinds.backtest.core.fills:without_dust",
        "held if held - units <= DUST * max(held, ordered) else units",
        "min(units, held)",
        "tests/backtest/test_fills.py::test_what_rounding_leaves_of_a_trade_is_closed",
    ),
    Protection(
        "an order pays its fixed commission once",
        "trainops.kinds.backtest.core.fills:added_commission",
        "commission(book, abs(done) + abs(units), price) - commission(book, done, price)",
        "commission(book, units, price)",
        "tests/backtest/test_fills.py::test_an_order_that_closes_trades_and_opens_one_pays_once",
    ),
    Protection(
        "an export that fails its own checks is not given out",
        "trainops.files.verify:write_verified",
        "if failed:",
        "if False:",
        "tests/formats/test_circle.py::test_a_file_that_fails_its_own_checks_is_not_exported",
    ),
]
