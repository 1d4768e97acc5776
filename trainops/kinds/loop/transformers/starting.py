"""What Trainer.train does to its model before the first step, and undoes after the last one."""

from typing import Any, cast

from torch import nn
from transformers import PreTrainedTokenizerBase, ProcessorMixin, Trainer
from transformers.integrations.neftune import activate_neftune, deactivate_neftune
from transformers.trainer_utils import align_special_tokens


def start_model(trainer: Trainer) -> None:
    """Checkpoint activations, align special tokens and add noise to embeddings, as is asked for."""
    args, model = trainer.args, cast(nn.Module, trainer.model)
    if args.bf16_full_eval or args.fp16_full_eval:  # then it has not been moved yet
        trainer._move_model_to_device(model, args.device)
    if args.activation_checkpointing:
        _checkpoint_activations(model, dict(cast(Any, args.activation_checkpointing_kwargs) or {}))
    is_of_texts = isinstance(trainer.processing_class, PreTrainedTokenizerBase | ProcessorMixin)
    if is_of_texts and hasattr(model, "config"):
        align_special_tokens(model, trainer.processing_class)
    if trainer.neftune_noise_alpha is not None:
        trainer.neftune_hook_handle = activate_neftune(
            model, trainer.neftune_noise_alpha, trainer.accelerator
        )


def end_model(trainer: Trainer) -> None:
    if trainer.neftune_noise_alpha is not None:
        deactivate_neftune(trainer.model, trainer.neftune_hook_handle, trainer.accelerator)


def _checkpoint_activations(model: Any, options: dict[str, Any]) -> None:
    layers = {
        "every_n_layers": options.pop("every_n_layers", 1),
        "offload": options.pop("offload", False),
    }
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable(
            activation_checkpointing_kwargs=options or None, **layers
        )
    else:  # of another library
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options or None, **layers)
