"""Training of a batch, in the order of hooks of Lightning's Trainer."""

import weakref
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch import Tensor, nn
from torch.optim import Optimizer

from trainops.kinds.loop.counting import first_dimension
from trainops.kinds.loop.lightning.averaging import Averaging
from trainops.kinds.loop.lightning.callbacks import LightningHooks
from trainops.kinds.loop.lightning.logged import Logged
from trainops.kinds.loop.lightning.requirements import overrides
from trainops.kinds.loop.lightning.view import TrainerView
from trainops.kinds.loop.metric_states import MetricStates
from trainops.kinds.loop.module.batch import count_examples
from trainops.kinds.loop.replicas import Replicas
from trainops.kinds.loop.run import Run
from trainops.learning.optimizer_state import needs_closure
from trainops.runtime.errors import InputError

PRECISIONS = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


class LightningStep(nn.Module):
    """The training step of a module as a forward pass, which DistributedDataParallel can wrap."""

    def __init__(
        self, module: LightningModule, call: Callable[[str, Any, int], Any], num_ranks: int
    ) -> None:
        super().__init__()
        self.module, self._call, self._is_alone = module, call, num_ranks == 1

    def forward(self, batch: Any, index: int, outputs: list[Any]) -> Tensor | None:
        """Append what training_step returns to `outputs`; return the loss. Raises InputError.

        None: the batch is not to be trained with.
        """
        output = self._call("training_step", batch, index)
        outputs.append(output)
        if output is None and self._is_alone:
            return None
        loss = output.get("loss") if isinstance(output, Mapping) else output
        if not isinstance(loss, Tensor):
            problem = f"training_step returned {type(output).__name__}"
            allowed = "a loss, or a dict with 'loss'" + ", or None" * self._is_alone
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
        return loss


class BatchSteps:
    """Calls training_step and validation_step with their hooks."""

    def __init__(
        self,
        run: Run,
        module: LightningModule,
        datamodule: LightningDataModule | None,
        view: TrainerView,
        logged: Logged,
        hooks: LightningHooks,
    ) -> None:
        self._hooks = hooks
        self._device, self._module, self._view, self._logged = run.device, module, view, logged
        self._data: Any = datamodule
        self._metrics = MetricStates(module)
        self._takes_index = {
            name: is_param_in_hook_signature(getattr(module, name), "batch_idx", min_args=2)
            for name in ("training_step", "validation_step")
        }
        # `clip` becomes an attribute of the module. A weak reference keeps the run, with its random
        # generators, out of what is found in the module.
        self._norms = weakref.ref(run.norms)
        precision = PRECISIONS.get(view.precision)
        self._autocast = torch.autocast(run.device.type, precision, enabled=precision is not None)
        self.replicas = self._connect(run)
        self._frozen = [
            (name, each) for name, each in module.named_parameters() if not each.requires_grad
        ]
        self.averaging = Averaging(module, self.replicas)
        self._scaler: torch.amp.GradScaler | None = None
        if view.precision == "16-mixed":
            self._scaler = run.keep("scaler", torch.amp.GradScaler(run.device.type))

    def transfer(self, batch: Any, loader_index: int = 0) -> Any:
        """Return the batch on the device, by the hooks of the DataModule or the module."""
        batch = self._hook("on_before_batch_transfer")(batch, loader_index)
        batch = self._hook("transfer_batch_to_device")(batch, self._device, loader_index)
        return self._hook("on_after_batch_transfer")(batch, loader_index)

    def train(self, batch: Any, index: int, *, is_stepping: bool) -> Any:
        """Train with a batch; return what training_step returned."""
        module = self._module
        with self._logging(batch, is_step=True):
            if self._hooks.call("on_train_batch_start", batch, index) == -1:
                problem = "on_train_batch_start returned -1, which skips the rest of an epoch"
                raise InputError({"recipe": f"{problem}; allowed: None"})
            self._require_connected()
            outputs: list[Any] = []
            if not module.automatic_optimization:
                outputs.append(self._call("training_step", batch, index))
            elif is_stepping:
                self._step(batch, index, outputs)
            else:
                with self.replicas.reducing(is_last=False):
                    self._closure(batch, index, outputs)
        return outputs[-1]

    def end(self, output: Any, batch: Any, index: int) -> None:
        with self._logging(batch, is_step=True):
            shown = {"loss": output.detach()} if isinstance(output, Tensor) else output
            if output is None and self._module.automatic_optimization:
                shown = {}  # as in Lightning
            self._hooks.call("on_train_batch_end", shown, batch, index)

    def validate(
        self, batch: Any, index: int, loader_index: int | None, *, is_counted: bool
    ) -> None:
        """Validate a batch; one that is not counted repeats another for the sake of the ranks.

        `loader_index`: of several loaders, the one that the batch is of.
        """
        logging = self._logging(
            batch, is_step=False, is_counted=is_counted, loader_index=loader_index
        )
        more = () if loader_index is None else (loader_index,)
        unchanged = nullcontext() if is_counted else self._metrics.unchanged()
        with unchanged, logging, torch.no_grad():
            self._hooks.call("on_validation_batch_start", batch, index, *more)
            output = self._call("validation_step", batch, index, *more)
            self._hooks.call("on_validation_batch_end", output, batch, index, *more)
        self._metrics.forget_values()  # a hook may have asked one for its value

    def clip(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Take the place of LightningModule.clip_gradients."""
        limit = self._view.gradient_clip_val if gradient_clip_val is None else gradient_clip_val
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        if not limit:
            return
        if (gradient_clip_algorithm or self._view.gradient_clip_algorithm) == "value":
            nn.utils.clip_grad_value_(parameters, limit)
        else:
            norm = nn.utils.clip_grad_norm_(parameters, limit)
            if (norms := self._norms()) is not None:
                norms.check(norm, is_scaled=self._scaler is not None)

    def backward(self, loss: Tensor, *arguments: Any, **options: Any) -> None:
        """Take the place of LightningModule.manual_backward."""
        self._hooks.call("on_before_backward", loss)
        self._module.backward(loss, *arguments, **options)
        if not self._module.automatic_optimization:
            self.averaging.average()
        self._hooks.call("on_after_backward")

    def _step(self, batch: Any, index: int, outputs: list[Any]) -> None:
        (optimizer,) = self._view.optimizers

        def closure() -> float | Tensor | None:
            loss = self._closure(batch, index, outputs)
            if self._scaler is not None and loss is not None:
                self._scaler.unscale_(optimizer)
            self._hooks.call("on_before_optimizer_step", optimizer)
            self._module.configure_gradient_clipping(
                optimizer, self._view.gradient_clip_val, self._view.gradient_clip_algorithm
            )
            # LBFGS decides by the loss, and all ranks alike
            if loss is None or not needs_closure(optimizer):
                return loss
            return self.replicas.mean(loss)

        if self._scaler is None:
            epoch = self._view.current_epoch
            self._module.optimizer_step(epoch, index, optimizer, closure)
        elif closure() is not None:
            self._scaler.step(optimizer)
            self._scaler.update()
        self._view.count_step()

    @torch.enable_grad()
    def _closure(self, batch: Any, index: int, outputs: list[Any]) -> Tensor | None:
        loss: Tensor | None = self.replicas.step(batch, index, outputs)
        if index % self._view.accumulate_grad_batches == 0:
            (optimizer,) = self._view.optimizers
            self._hooks.call("on_before_zero_grad", optimizer)
            self._module.optimizer_zero_grad(self._view.current_epoch, index, optimizer)
        if loss is None:
            return None
        loss = loss / self._view.accumulate_grad_batches
        self.backward(loss if self._scaler is None else self._scaler.scale(loss))
        return loss.detach()

    def _connect(self, run: Run) -> Replicas:
        module = self._module
        step: nn.Module = LightningStep(module, self._call, run.num_ranks)
        if run.is_sharded:
            run.wrap(module, methods=["training_step", "validation_step"])
        elif module.automatic_optimization:
            # Hooks may freeze parameters, which then have no gradient.
            step = run.wrap(step, find_unused_parameters=True)
        replicas = Replicas(run, module, step)
        if not module.automatic_optimization:
            replicas.share_all()
        return replicas

    def _require_connected(self) -> None:
        """Raise InputError for a trained parameter whose gradients are not averaged."""
        for name, each in self._frozen:
            if each.requires_grad and self.replicas.num_ranks > 1:
                problem = f"{name} is trained, but was frozen before the ranks were connected"
                allowed = "with several processes, to freeze parameters in on_fit_start or later"
                raise InputError({"recipe": f"{problem}; allowed: {allowed}"})

    def _call(self, name: str, batch: Any, *indices: int) -> Any:
        method = getattr(self._module, name)
        with self._autocast:
            return method(batch, *indices[not self._takes_index[name] :])

    def _hook(self, name: str) -> Any:
        data = self._data
        is_of_data = data is not None and overrides(data, LightningDataModule, name)
        return getattr(data if is_of_data else self._module, name)

    def _logging(self, batch: Any, *, is_step: bool, **options: Any) -> Any:
        """Let what is logged be weighted as by Lightning, which counts no lists of examples."""
        count = partial(count_examples, batch, first_dimension)
        return self._logged.during(count, is_step=is_step, **options)
