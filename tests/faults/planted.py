"""Faults that a person could make in the engines, and the tests that notice each."""

from dataclasses import dataclass

from tests.faults.taking_out import without

MODULES = {  # all that is known here of where code lies
    "training.mean_metrics": "trainops.learning.mean_metrics",
    "training.data": "trainops.learning.data",
    "training.job": "trainops.kinds.training.job",
    "training.trainer": "trainops.kinds.training.trainer",
    "training.optimization": "trainops.kinds.training.optimization",
    "training.progress": "trainops.kinds.training.progress",
    "attempt": "trainops.runtime.checkpointer",
    "archives": "trainops.runtime.checkpoint.archives",
    "durable": "trainops.runtime.checkpoint.durable",
    "manifest": "trainops.runtime.checkpoint.manifest",
    "policy": "trainops.runtime.policy",
    "kind": "trainops.kind",
    "runner": "trainops.runtime.loop",
    "selfcheck": "trainops.process.selfcheck",
    "snapshot": "trainops.runtime.checkpoint.snapshot",
    "stream": "trainops.runtime.checkpoint.stream",
    "federated.accounting": "trainops.kinds.federated.accounting",
    "federated.batches": "trainops.kinds.federated.batches",
    "federated.clipping": "trainops.kinds.federated.clipping",
    "federated.optimizer": "trainops.kinds.federated.fast.optimizer",
    "federated.private": "trainops.kinds.federated.private",
    "federated.budget": "trainops.kinds.federated.budget",
    "federated.server": "trainops.kinds.federated.server",
    "federated.fedprox": "trainops.kinds.federated.strategies.fedprox",
    "federated.strategy": "trainops.kinds.federated.strategies.strategy",
    "rl.fused_adam": "trainops.kinds.rl.fast.fused_adam",
    "rl.dqn": "trainops.kinds.rl.learners.dqn",
    "rl.learner": "trainops.kinds.rl.learners.learner",
    "rl.ppo": "trainops.kinds.rl.learners.ppo",
    "rl.priorities": "trainops.kinds.rl.priorities",
    "rl.replay": "trainops.kinds.rl.replay",
    "rl.schedules": "trainops.kinds.rl.schedules",
    "rl.targets": "trainops.kinds.rl.targets",
    "backtest.fills": "trainops.kinds.backtest.core.fills",
    "backtest.matching": "trainops.kinds.backtest.core.matching",
    "backtest.orders": "trainops.kinds.backtest.core.orders",
    "backtest.report": "trainops.kinds.backtest.report",
    "backtest.summary": "trainops.kinds.backtest.summary",
}
STEPS = "tests/training_oracle/test_steps.py"
STOPPING = "tests/training_oracle/test_stopping.py"
SCHEDULES = "tests/training_oracle/test_schedules.py"
EVERY_OPTIMIZER = f"{STEPS}::test_every_optimizer_and_schedule"
BY_HAND = f"{STOPPING}::test_epochs_and_the_best_of_them_by_hand"
RUN = f"{STEPS}::test_the_last_checkpoint_of_a_run_holds_the_plain_loops_weights"
RUNNER = "tests/engines/test_runner.py"
CHECKPOINT = "tests/engines/test_checkpoint.py"
POLICY = "tests/engines/test_policy.py"
STREAM = "tests/engines/test_stream.py"
ROUNDS = "tests/federated/test_plain_rounds.py::test_rounds"
PRIVATE = "tests/federated/test_private_rounds.py"
OPACUS = "tests/federated/test_references.py"
UPDATES = "tests/rl/test_plain_updates.py"
TARGETS = "tests/rl/test_targets.py"
FILLS = "tests/backtest/test_fills.py"
REPORT = "tests/backtest/test_report.py"


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    module: str  # a name in MODULES
    function: str  # Class.function
    right: str  # a run of its tokens: see `taking_out`
    wrong: str  # what stands there instead; nothing: `pass`
    tests: tuple[str, ...]  # of which one or more must fail

    @property
    def path(self) -> str:
        return MODULES[self.module].replace(".", "/") + ".py"

    def planted_in(self, source: str) -> str:
        """Return the module's source with the fault. Raises LookupError where it has no place."""
        return without(source, self.function, self.right, self.wrong)


def _of(module: str, *faults: tuple[str, str, str, str, str]) -> list[Fault]:
    """Return faults of one module, each (name, function, right, wrong, test)."""
    return [
        Fault(name, module, function, right, wrong, (test,))
        for name, function, right, wrong, test in faults
    ]


LEARNER = _of(
    "training.trainer",
    ("gradients are too large by the examples of a step", "Trainer.learn",
     "(loss / num_samples).backward()", "loss.backward()", EVERY_OPTIMIZER),
    ("gradients are divided by the batches of a step", "Trainer.learn",
     "(loss / num_samples).backward()", "(loss / len(indices) / len(batches)).backward()",
     EVERY_OPTIMIZER),
    ("gradients of earlier steps are kept", "Trainer.learn",
     "optimizer.zero_grad()", "", EVERY_OPTIMIZER),
    ("gradients are clipped at ten times the norm", "Trainer._clip",
     "self.model.parameters(), self.config.max_grad_norm",
     "self.model.parameters(), 10 * self.config.max_grad_norm", EVERY_OPTIMIZER),
    ("gradients are clipped to a thousandth", "Trainer._clip",
     "norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)",
     "norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), "
     "min(1e-3, self.config.max_grad_norm))", EVERY_OPTIMIZER),
    ("a gradient that is not finite moves the weights", "Trainer._clip",
     'raise NonFiniteLoss(step, norm.item(), "gradient", where())', "return",
     "tests/engines/test_training.py::test_a_gradient_that_explodes_never_reaches_the_weights"),
    ("the schedule does not move", "Trainer.learn",
     "scheduler.step()", "", f"{SCHEDULES}::test_cosine_goes_down_to_nothing_over_all_steps"),
    ("the schedule moves once for each batch", "Trainer.learn",
     "scheduler.step()", "[scheduler.step() for _ in batches]", EVERY_OPTIMIZER),
    ("a plateau schedule does not receive the metric", "Trainer.epoch_done",
     "scheduler.step(monitored)", "scheduler.step(0.0)", f"{STEPS}::test_schedules_of_a_recipe"),
    ("a validation is made in training mode", "Trainer.validate",
     "self.model.eval()", "", EVERY_OPTIMIZER),
    ("training goes on in evaluation mode", "Trainer.validate",
     "self.model.train()", "", EVERY_OPTIMIZER),
    ("validation batches of one example fewer", "Trainer.validation_batches",
     "torch.arange(len(self.validation))", "torch.arange(len(self.validation) - 1)",
     EVERY_OPTIMIZER),
    ("a short batch counts as a whole one", "Trainer._measure",
     "self.ingredients.loss(outputs, targets) * len(indices)",
     "self.ingredients.loss(outputs, targets) * self.config.batch_size", EVERY_OPTIMIZER),
    ("losses are not in the units people read", "Trainer.in_units",
     "mean * factors.get(name, 1.0)", "mean",
     f"{STEPS}::test_every_loss_with_and_without_validation"),
)  # fmt: skip
TRAINING = [
    *_of(
        "training.progress",
        ("early stopping one epoch late", "TrainingProgress.is_stopped_early",
         "self.epochs_without_improvement >= patience",
         "self.epochs_without_improvement > patience", BY_HAND),
        ("an epoch as good as the best takes its place", "BestEpoch.and_then",
         "sign * value < sign * self.metric", "sign * value <= sign * self.metric", BY_HAND),
        ("a higher metric is never better", "BestEpoch.and_then",
         '1 if mode == "min" else -1', "1", BY_HAND),
        ("an infinite metric is the best", "BestEpoch.and_then",
         "math.isfinite(value)", "value == value", BY_HAND),
        ("a resume forgets the best epoch", "TrainingProgress.__post_init__",
         "self._judge(name, epoch, value)", "",
         f"{STOPPING}::test_a_fork_with_more_patience_continues_from_where_it_was_stopped"),
    ),
    *_of(
        "training.mean_metrics",
        ("means over batches, not over examples", "MeanMetrics.add",
         "self.count += count", "self.count += 1", EVERY_OPTIMIZER),
    ),
    *_of(
        "training.data",
        ("every epoch has the same order", "order",
         'f"epoch {epoch}"', '"epoch 0"', EVERY_OPTIMIZER),
        ("batches overlap by an example", "BatchPlan.batches",
         "chosen = indices[first : first + self.batches_per_step * self.batch_size]",
         "chosen = indices[max(0, first - 1) : first + self.batches_per_step * self.batch_size]",
         EVERY_OPTIMIZER),
    ),
    *_of(
        "training.job",
        ("the metrics of an epoch are those since the last point", "TrainingJob._finish_epoch",
         "self.epoch_means.means()", "self.epoch_means.means() | self.logged_loss.means()",
         EVERY_OPTIMIZER),
        ("the curve's loss is a mean since the start", "TrainingJob._log",
         "self.logged_loss.reset()", "", EVERY_OPTIMIZER),
        ("the best model follows the training", "TrainingJob._finish_epoch",
         "_copy(self.trainer.model.state_dict())", "self.trainer.model.state_dict()", BY_HAND),
        ("the next epoch's means start with this one's", "TrainingJob._finish_epoch",
         "self.epoch_means.reset()", "", EVERY_OPTIMIZER),
    ),
    *_of(
        "training.optimization",
        ("sgd has no momentum", "make_optimizers",
         "learning_rate, config.momentum, weight_decay", "learning_rate, weight_decay",
         EVERY_OPTIMIZER),
        ("adamw has torch's own weight decay", "make_optimizers",
         "AdamW(model.parameters(), learning_rate, weight_decay=weight_decay)",
         "AdamW(model.parameters(), learning_rate)", EVERY_OPTIMIZER),
        ("adam decays weights as adamw", "make_optimizers",
         "Adam(model.parameters(), learning_rate, weight_decay=weight_decay)",
         "AdamW(model.parameters(), learning_rate, weight_decay=weight_decay)", EVERY_OPTIMIZER),
        ("a cosine lasts an epoch", "_scheduler",
         "T_max=total_steps", "T_max=epoch_steps",
         f"{SCHEDULES}::test_cosine_goes_down_to_nothing_over_all_steps"),
        ("drops are counted in steps", "_scheduler",
         "config.scheduler_step_epochs * epoch_steps", "config.scheduler_step_epochs",
         f"{SCHEDULES}::test_step_drops_after_every_n_epochs"),
        ("onecycle has torch's own warmup", "_scheduler",
         "rising = max(config.warmup_fraction, 1 / total_steps)", "rising = 0.3",
         f"{SCHEDULES}::test_onecycle_rises_to_the_rate_and_falls_to_a_ten_thousandth_of_its_start"),
        ("the first step of a warmup has no rate", "_WarmupCosine.__call__",
         "(step + 1) / (self._warmup_steps + 1)", "step / (self._warmup_steps + 1)",
         f"{SCHEDULES}::test_warmup_cosine_rises_in_a_line_and_falls_to_nothing"),
    ),
]  # fmt: skip
LOOP = [
    *_of(
        "runner",
        ("a job is made before the random streams start", "_made",
         "reproducibility.seed_all(seed)", "",
         f"{RUNNER}::test_a_job_is_made_with_random_streams_that_begin_at_the_seed"),
        ("a stop saves nothing", "run", "attempt.save(job, STOPPING[directive])", "",
         f"{RUNNER}::test_cancel_and_preemption_save_the_step_they_stopped_at"),
        ("a run that ends saves nothing", "run",
         "attempt.save(job, CheckpointType.FINAL)", "", f"{RUNNER}::test_runs_to_the_end"),
        ("a checkpoint beside the one that ends a run", "run",
         "if progress.is_over or directive is not Directive.PROCEED: break", "",
         f"{RUNNER}::"
         "test_the_step_that_ends_a_run_is_saved_once_although_a_checkpoint_is_due"),
    ),
    *_of(
        "kind",
        ("a job is made where importing left the random streams", "Kind._loaded",
         "load(SEED_ALL)(config.seed)", "", EVERY_OPTIMIZER),
    ),
    *_of(
        "attempt",
        ("random streams are not restored", "_take_over",
         "reproducibility.load_state_dict(streams)", "tuple(streams)", RUN),
        ("what is not finite is saved after a failure", "Checkpointer._is_worth_saving",
         "all_finite(state)", "True",
         f"{RUNNER}::test_a_safe_point_that_is_no_newer_or_not_finite_is_not_saved"),
        ("an evaluation is repeated with other random numbers", "Checkpointer.moved",
         "self._streams = reproducibility.state_dict()", "",
         f"{RUNNER}::test_an_evaluation_that_draws_is_repeated_with_the_same_numbers"),
        ("a job of another step than its checkpoint is taken", "_take_over",
         "if job.step != checkpoint.step:", "if False:", f"{RUNNER}"),
        ("the oldest checkpoint is taken first", "Checkpointer._newest_healthy",
         "self.store.candidates", "reversed(self.store.candidates)",
         f"{RUNNER}::test_a_bad_checkpoint_is_said_out_loud_and_the_older_one_is_taken"),
    ),
    *_of(
        "policy",
        ("a checkpoint is a step late", "CheckpointPolicy.is_due",
         "step >= self._due_step", "step > self._due_step", POLICY),
        ("steps are counted from the start of the run", "CheckpointPolicy.saved",
         "step + self.every_steps", "self.every_steps", POLICY),
        ("a job's slower pace counts", "CheckpointPolicy.at_least_every",
         "min(steps, self.every_steps or steps)", "max(steps, self.every_steps or steps)", POLICY),
    ),
    *_of(
        "manifest",
        ("a file's digest is not compared", "copy_verified",
         "if _copied(file, copy) != artifact.blake3:",
         "if not _copied(file, copy):",
         f"{CHECKPOINT}::test_damage_to_a_file_is_found_and_named"),
    ),
    *_of(
        "archives",
        ("a part that changed is referred to", "Earlier.unchanged_file",
         "part in self.changed or name == tail_name(part)", "name == tail_name(part)",
         "tests/engines/test_references.py"),
    ),
    *_of(
        "durable",
        ("bytes are not synced", "DurableFile.finish",
         "os.fsync(self._file.fileno())", "",
         f"{CHECKPOINT}::test_there_is_a_manifest_only_once_every_file_is_on_the_disk"),
        ("what was allocated too much stays", "DurableFile.finish",
         "self._file.truncate(self.size_bytes)", "", CHECKPOINT),
    ),
    *_of(
        "snapshot",
        ("a frozen tensor follows the training", "_Copying._copy_tensor",
         "_room_for(tensor).copy_(tensor, non_blocking=tensor.is_cuda)", "tensor",
         "tests/engines/test_snapshot.py"),
        ("a safe point is taken at every step", "SafePoint.is_affordable",
         "self._clock() >= self._next_at", "True",
         f"{RUNNER}::test_freezing_costs_only_its_share_of_the_time"),
    ),
    *_of(
        "stream",
        ("a segment too many is forgotten", "Stream.forget",
         "before_row // self.segment_rows - self.first_segment",
         "before_row // self.segment_rows - self.first_segment + 1", STREAM),
        ("rows are read from a wrong place of a segment", "Stream.column",
         "first - self.first_row - skipped * self.segment_rows", "first - self.first_row",
         f"{STREAM}::test_a_column_is_read_from_any_row_on"),
    ),
    *_of(
        "selfcheck",
        ("two processes always agree", "SelfCheck._compare",
         "own.get(part) != theirs.get(part)", "False",
         "tests/engines/test_selfcheck.py::test_a_plain_counter_is_found"),
    ),
]  # fmt: skip
FEDERATED = [
    *_of(
        "federated.strategy",
        ("all clients count alike", "FederatedStrategy.combine",
         "(weights / weights.sum())", "(torch.ones_like(weights) / len(weights))", ROUNDS),
        ("the server's rate is ignored", "FederatedStrategy.move",
         "self.config.learning_rate * update", "update", ROUNDS),
    ),
    *_of(
        "federated.fedprox",
        ("fedprox pulls by one", "FedProx.pull",
         "alpha=self.config.proximal", "alpha=1.0", ROUNDS),
    ),
    *_of(
        "federated.batches",
        ("every local epoch has the same order", "order_of",
         'context.config.seed, "order", number, client, epoch',
         'context.config.seed, "order", number, client, 0', ROUNDS),
    ),
    *_of(
        "federated.optimizer",
        ("adamw decays as adam", "ClientOptimizer.move",
         'config.optimizer == "adamw"', "False", ROUNDS),
        ("adam's bias is not corrected", "ClientOptimizer._move_by_adam",
         "self.config.learning_rate / (1 - one**steps)", "self.config.learning_rate * one**0",
         ROUNDS),
    ),
    *_of(
        "federated.clipping",
        ("examples are clipped at ten times the norm", "shares_of",
         "max_norm / (squares.sqrt() * (1 + SLACK))", "10 * max_norm / squares.sqrt()",
         "tests/federated/test_clipping.py"),
        ("updates are clipped at ten times the norm", "clipped",
         "update.double().unsqueeze(0), max_norm", "update.double().unsqueeze(0), 10 * max_norm",
         "tests/federated/test_clipping.py"),
    ),
    *_of(
        "federated.private",
        ("noise does not go by the clip", "NoisyGradients.fill",
         "self.noise.multiplier * self.noise.max_grad_norm", "self.noise.multiplier",
         f"{OPACUS}::test_noisy_gradients_agree_with_a_naive_loop"),
        ("sums are divided by the examples that were drawn", "NoisyGradients.fill",
         "total /= self.noise.expected_examples", "total /= max(1, len(indices))",
         f"{OPACUS}::test_noisy_gradients_agree_with_a_naive_loop"),
    ),
    *_of(
        "federated.accounting",
        ("moments are divided by the order", "divergence",
         "/ (order - 1)", "/ order", f"{OPACUS}::test_epsilon_is_that_of_opacus"),
        ("delta is ignored", "_converted",
         "(math.log(delta) + np.log(ORDERS))", "np.log(ORDERS)",
         f"{OPACUS}::test_epsilon_is_that_of_opacus"),
    ),
    *_of(
        "federated.budget",
        ("the budget is never exceeded", "PrivacyBudget.affords",
         "self._total.with_entry(entry) <= target", "True",
         "tests/federated/test_ledger.py::"
         "test_the_budget_stops_a_run_before_the_step_that_would_exceed_it"),
    ),
    *_of(
        "federated.server",
        ("a round's noise does not go by the clip", "FederatedServer._noised",
         "release.noise_multiplier * config.privacy.max_update_norm", "release.noise_multiplier",
         f"{PRIVATE}::test_rounds_of_private_clients"),
        ("a private round is divided by the clients that came", "FederatedServer._noised",
         "(config.fraction * self.context.schedule.num_clients)", "max(1, len(self.updates))",
         f"{PRIVATE}::test_rounds_of_private_clients"),
        ("clients' means count alike", "FederatedServer._means",
         "each.means[name] * each.num_examples for each in updates",
         "each.means[name] * total / len(updates) for each in updates", ROUNDS),
    ),
]  # fmt: skip
DQN_UPDATES = f"{UPDATES}::test_dqn_updates"
PPO_UPDATES = f"{UPDATES}::test_ppo_updates"
RL = [
    *_of(
        "rl.targets",
        ("something follows a terminal step", "one_step",
         "discount * (~terminated).to(rewards.dtype)", "discount * torch.ones_like(rewards)",
         DQN_UPDATES),
        ("rewards beyond an episode's end count", "n_step",
         "counts[:, 1:] = (before == 0).float()", "", TARGETS),
        ("a masked action is the best", "q_target",
         "chooser.masked_fill(~masks, NEVER)", "chooser", TARGETS),
        ("advantages flow over the ends of episodes", "advantages",
         "discount * gae_lambda * (~ended).float()",
         "discount * gae_lambda * torch.ones_like(deltas)", TARGETS),
        ("weights favour what is drawn often", "importance",
         "** -beta", "** beta", TARGETS),
    ),
    *_of(
        "rl.dqn",
        ("double learning is never used", "DqnLearner.targets",
         "if config.dqn.double else None", "if False else None", DQN_UPDATES),
        ("the learning network is its own target", "DqnLearner.targets",
         "self.target(led_to.next_observations)", "self.online(led_to.next_observations)",
         DQN_UPDATES),
        ("the target is replaced once too early", "DqnLearner.move",
         "self.updates % dqn.target_every == 0", "(self.updates + 1) % dqn.target_every == 0",
         f"{UPDATES}::test_a_target_is_replaced_after_every_n_updates"),
        ("beta stays where it began", "DqnLearner._draw",
         "linear(config.beta, 1.0, config.beta_steps, environment_steps)", "config.beta",
         DQN_UPDATES),
        ("priorities are not moved", "DqnLearner.update",
         "self.priorities.update(numbers % self.replay.slots, (values - targets).detach())", "",
         DQN_UPDATES),
        ("weights of drawn rows are left out", "mean_loss",
         'nn.functional.smooth_l1_loss(values, targets, reduction="none") * weights',
         'nn.functional.smooth_l1_loss(values, targets, reduction="none")', DQN_UPDATES),
        ("agents never explore", "DqnLearner.act",
         "< epsilon", "< 0 * epsilon",
         f"{UPDATES}::test_agents_explore_as_often_as_they_are_configured"),
    ),
    *_of(
        "rl.priorities",
        ("priorities go by squares", "Priorities.update",
         "errors.abs()", "errors.square()", DQN_UPDATES),
        ("a new transition has the smallest priority", "Priorities.add",
         "self.values[taken] = self.largest", "self.values[taken] = SMALLEST", TARGETS),
    ),
    *_of(
        "rl.ppo",
        ("ratios are clipped at ten times the bound", "PpoLearner._loss",
         "ratio.clamp(1 - clip, 1 + clip)", "ratio.clamp(1 - 10 * clip, 1 + 10 * clip)",
         PPO_UPDATES),
        ("the better of two gains counts", "PpoLearner._loss",
         "torch.minimum", "torch.maximum", PPO_UPDATES),
        ("entropy is punished", "PpoLearner._loss",
         "- ppo.entropy_weight * entropy.mean()", "+ ppo.entropy_weight * entropy.mean()",
         PPO_UPDATES),
        ("advantages are not standardised", "PpoLearner._loss",
         "if len(advantage) > 1:", "if False:", PPO_UPDATES),
        ("returns are advantages", "PpoLearner._judged",
         "found, found + values", "found, found", PPO_UPDATES),
        ("a truncated step is a terminal one", "PpoLearner._judged",
         "batch.terminated.view(shape), (batch",
         "(batch.terminated | batch.truncated).view(shape), (batch", PPO_UPDATES),
    ),
    *_of(
        "rl.fused_adam",
        ("small gradients are made larger", "FusedAdam.move",
         "(self.max_norm / (norm + 1e-6)).clamp(max=1.0)", "self.max_norm / (norm + 1e-6)",
         "tests/rl/test_fused_adam.py"),
    ),
    *_of(
        "rl.replay",
        ("rows are drawn from the wrong end", "Ring.draw",
         "drawn + self.first", "drawn", DQN_UPDATES),
    ),
    *_of(
        "rl.schedules",
        ("a line goes on beyond its end", "linear",
         "min(1.0, at / over)", "at / over", f"{TARGETS}::test_exploration_by_hand"),
    ),
    *_of(
        "rl.learner",
        ("rates are never annealed", "annealed",
         "1.0 - environment_steps / (config.vector_steps * config.agents)", "1.0", PPO_UPDATES),
    ),
]  # fmt: skip
BACKTEST = [
    *_of(
        "backtest.fills",
        ("there is no least commission", "commission",
         "max(settings.commission_minimum, paid)", "paid",
         f"{FILLS}::test_a_commission_is_fixed_and_relative_and_at_least_the_minimum"),
        ("slippage is left out", "market_price",
         "settings.half_spread + settings.slippage", "settings.half_spread",
         f"{FILLS}::test_spread_and_slippage_are_against_every_market_and_stop_order"),
        ("short positions make free_slot for more", "exposure_of",
         "abs(book.trades[i].units)", "book.trades[i].units",
         "tests/backtest/test_simulation.py::test_the_engine_does_what_the_page_says"),
        ("a part of a trade bears the whole commission of its entry", "close_units",
         "trade.entry_commission * (part / trade.units)", "trade.entry_commission",
         f"{FILLS}::test_a_part_of_a_trade_bears_its_part_of_the_commission"),
    ),
    *_of(
        "backtest.matching",
        ("a stop beyond the open gets its stop", "_stop_price",
         "max(bars.open[bar, symbol], stop)", "stop",
         f"{FILLS}::test_a_stop_order_gets_its_stop_or_worse"),
        ("a limit beyond the open gets its limit", "_limit_price",
         "min(bars.open[bar, symbol] * away, limit)", "limit",
         f"{FILLS}::test_a_limit_order_gets_its_limit_or_better"),
        ("a limit opened inside a bar takes its profit there", "_take_profits",
         "not (is_inside and trade.opened == BY_LIMIT)", "True",
         f"{FILLS}::"
         "test_a_trade_opened_by_a_limit_inside_a_bar_is_stopped_in_it_but_takes_no_profit"),
        ("what opens is filled before what closes", "fill_market_orders",
         "(True, False)", "(False, True)",
         "tests/backtest/test_simulation.py::test_the_engine_does_what_the_page_says"),
    ),
    *_of(
        "backtest.orders",
        ("an order lives a bar too long", "expire",
         "book.orders[row].last_bar <= bar", "book.orders[row].last_bar < bar",
         f"{FILLS}::test_an_order_for_one_bar_is_gone_after_it"),
        ("a commission needs no margin", "_covered_units",
         "abs(units) * price + added_commission(book, done, units, price)", "abs(units) * price",
         f"{FILLS}::test_the_margin_covers_the_commission_too"),
    ),
    *_of(
        "backtest.report",
        ("volatility is of the whole population", "risk",
         "changes.var(ddof=1)", "changes.var()",
         "tests/backtest/test_references.py::test_the_report_agrees_with_the_reference"),
        ("drawdowns are in shares of the first equity", "drawdown",
         "1 - equity / peaks", "(peaks - equity) / equity[0]",
         f"{REPORT}::test_a_drawdown_lasts_until_the_peak_is_reached_again"),
        ("kelly's bet has won and lost the wrong way round", "kelly",
         "float(won.mean() / -lost.mean())", "float(-lost.mean() / won.mean())",
         f"{REPORT}::test_trades_are_counted_won_and_lost"),
    ),
    *_of(
        "backtest.summary",
        ("the peak does not rise", "AccountEquity.after",
         "max(self.peak, float(equity.max()))", "self.peak",
         "tests/backtest/test_job.py::test_the_summary_says_where_the_account_stands"),
    ),
]  # fmt: skip
FAULTS = [*LEARNER, *TRAINING, *LOOP, *FEDERATED, *RL, *BACKTEST]
