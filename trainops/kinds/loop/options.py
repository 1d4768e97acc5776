"""Options of each optimizer and schedule of torch: types, defaults and bounds. Without torch."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pydantic import Field, create_model

from trainops.runtime.config import Strict

Fields: TypeAlias = dict[str, Any]  # (type, Field) by name
INFINITE = 10**9


def number(default: Any, description: str, **bounds: Any) -> tuple[Any, Any]:
    return (float, Field(default, description=description, **bounds))


def integer(default: Any, description: str, **bounds: Any) -> tuple[Any, Any]:
    return (int, Field(default, description=description, le=INFINITE, **bounds))


def flag(default: bool, description: str) -> tuple[Any, Any]:
    return (bool, Field(default, description=description))


def pair(default: list[float], description: str) -> tuple[Any, Any]:
    field = Field(default, min_length=2, max_length=2, description=description)
    return (list[float], field)


def default_by_length(description: str) -> tuple[Any, Any]:
    text = f"{description}; by default the length of the training."
    return (int | None, Field(None, ge=1, le=INFINITE, description=text))


BETAS = pair([0.9, 0.999], "Decay factors of the means of gradients and of their squares.")
EPS = number(1e-8, "Number added to denominators.", ge=0)
DECOUPLED = flag(False, "Apply the weight decay to the weights instead of the gradients.")
AMSGRAD = flag(False, "Divide by the largest mean of squares so far (AMSGrad).")
MOMENTUM = number(0.0, "Momentum factor.", ge=0)

OPTIMIZERS: Mapping[str, Fields] = {
    "ASGD": {
        "lambd": number(1e-4, "Decay term."),
        "alpha": number(0.75, "Power of the learning rate's decay."),
        "t0": number(1e6, "Step at which averaging begins."),
    },
    "Adadelta": {
        "rho": number(0.9, "Decay factor of the mean of squared gradients.", ge=0, le=1),
        "eps": number(1e-6, "Number added to denominators.", ge=0),
    },
    "Adafactor": {
        "beta2_decay": number(-0.8, "Power of the decay of the mean of squares.", le=0),
        "d": number(1.0, "Clipping threshold of updates.", ge=1),
    },
    "Adagrad": {
        "lr_decay": number(0.0, "Decay of the learning rate.", ge=0),
        "initial_accumulator_value": number(0.0, "Initial sum of squared gradients.", ge=0),
        "eps": number(1e-10, "Number added to denominators.", ge=0),
    },
    "Adam": {
        "betas": BETAS, "eps": EPS, "amsgrad": AMSGRAD, "decoupled_weight_decay": DECOUPLED,
    },
    "AdamW": {"betas": BETAS, "eps": EPS, "amsgrad": AMSGRAD},
    "Adamax": {"betas": BETAS, "eps": EPS},
    "LBFGS": {
        "max_iter": integer(20, "Iterations per step.", ge=1),
        "max_eval": (
            int | None,
            Field(None, ge=1, description="Evaluations per step; by default 1.25 of max_iter."),
        ),
        "tolerance_grad": number(1e-7, "Gradient at which a step ends.", ge=0),
        "tolerance_change": number(1e-9, "Change at which a step ends.", ge=0),
        "history_size": integer(100, "Number of updates that are remembered.", ge=1),
        "line_search_fn": (
            Literal["strong_wolfe"] | None,
            Field(None, description="Line search; none by default."),
        ),
    },
    "Muon": {
        "momentum": number(0.95, "Momentum factor.", ge=0),
        "nesterov": flag(True, "Use Nesterov's momentum."),
        "eps": number(1e-7, "Number added to denominators.", ge=0),
        "ns_steps": integer(5, "Iterations of the orthogonalization.", ge=1, lt=100),
        "adjust_lr_fn": (
            Literal["original", "match_rms_adamw"] | None,
            Field(None, description="Adjustment of the learning rate; by default original."),
        ),
    },
    "NAdam": {
        "betas": BETAS, "eps": EPS, "decoupled_weight_decay": DECOUPLED,
        "momentum_decay": number(4e-3, "Decay of the momentum.", ge=0),
    },
    "RAdam": {"betas": BETAS, "eps": EPS, "decoupled_weight_decay": DECOUPLED},
    "RMSprop": {
        "alpha": number(0.99, "Decay factor of the mean of squared gradients.", ge=0),
        "eps": EPS, "momentum": MOMENTUM,
        "centered": flag(False, "Divide by an estimate of the variance."),
    },
    "Rprop": {
        "etas": pair([0.5, 1.2], "Factors by which a step becomes smaller and larger."),
        "step_sizes": pair([1e-6, 50.0], "Smallest and largest step."),
    },
    "SGD": {
        "momentum": MOMENTUM, "dampening": number(0.0, "Dampening of the momentum."),
        "nesterov": flag(False, "Use Nesterov's momentum (with momentum only)."),
    },
    "SparseAdam": {"betas": BETAS, "eps": EPS},
}  # fmt: skip

START, ETA_MIN = "Factor of the learning rate at the start.", "Minimum learning rate."
CYCLE_MOMENTUM = flag(True, "Move the momentum against the learning rate.")
GAMMA = number(0.1, "Factor by which the learning rate is multiplied.", ge=0)

SCHEDULES: Mapping[str, Fields] = {
    "none": {},
    "ConstantLR": {
        "factor": number(1 / 3, START, ge=0, le=1),
        "total_iters": integer(5, "Steps of the schedule with this factor.", ge=0),
    },
    "CosineAnnealingLR": {
        "T_max": default_by_length("Steps of the schedule until the minimum"),
        "eta_min": number(0.0, ETA_MIN),
    },
    "CosineAnnealingWarmRestarts": {
        "T_0": integer(..., "Steps of the schedule until the first restart.", ge=1),
        "T_mult": integer(1, "Factor of the steps until the next restart.", ge=1),
        "eta_min": number(0.0, ETA_MIN),
    },
    "CyclicLR": {
        "base_lr": number(..., "Lowest learning rate.", ge=0),
        "max_lr": number(..., "Highest learning rate.", ge=0),
        "step_size_up": integer(2000, "Steps of the schedule in which the rate rises.", ge=1),
        "step_size_down": (
            int | None,
            Field(None, ge=1, description="Steps in which it falls; by default step_size_up."),
        ),
        "mode": (
            Literal["triangular", "triangular2", "exp_range"],
            Field("triangular", description="Shape of the cycles."),
        ),
        "gamma": number(1.0, "Factor per step (mode exp_range only)."),
        "scale_mode": (
            Literal["cycle", "iterations"],
            Field("cycle", description="Unit of the shape: cycles or steps."),
        ),
        "cycle_momentum": CYCLE_MOMENTUM,
        "base_momentum": number(0.8, "Lowest momentum.", ge=0),
        "max_momentum": number(0.9, "Highest momentum.", ge=0),
    },
    "ExponentialLR": {"gamma": number(..., "Factor of the learning rate per step.", ge=0)},
    "LinearLR": {
        "start_factor": number(1 / 3, START, gt=0, le=1),
        "end_factor": number(1.0, "Factor of the learning rate at the end.", ge=0, le=1),
        "total_iters": default_by_length("Steps of the schedule until the end factor"),
    },
    "MultiStepLR": {
        "milestones": (
            list[float],
            Field(..., min_length=1, description="Steps of the schedule after which it decays."),
        ),
        "gamma": GAMMA,
    },
    "OneCycleLR": {
        "max_lr": number(..., "Highest learning rate.", gt=0),
        "total_steps": default_by_length("Steps of the schedule"),
        "pct_start": number(0.3, "Fraction of the steps in which the rate rises.", ge=0, le=1),
        "anneal_strategy": (
            Literal["cos", "linear"],
            Field("cos", description="Shape of rise and fall."),
        ),
        "cycle_momentum": CYCLE_MOMENTUM,
        "base_momentum": number(0.85, "Lowest momentum.", ge=0),
        "max_momentum": number(0.95, "Highest momentum.", ge=0),
        "div_factor": number(25.0, "Highest divided by initial learning rate.", gt=0),
        "final_div_factor": number(1e4, "Initial divided by final learning rate.", gt=0),
        "three_phase": flag(False, "Fall to the initial rate first, then to the final one."),
    },
    "PolynomialLR": {
        "total_iters": default_by_length("Steps of the schedule until 0"),
        "power": number(1.0, "Power of the polynomial."),
    },
    "ReduceLROnPlateau": {
        "mode": (
            Literal["min", "max"],
            Field("min", description="Whether lower or higher values of the metric are better."),
        ),
        "factor": number(0.1, "Factor by which the learning rate is multiplied.", ge=0, lt=1),
        "patience": integer(10, "Validations without improvement that are waited for.", ge=0),
        "threshold": number(1e-4, "Smallest change that is an improvement."),
        "threshold_mode": (
            Literal["rel", "abs"],
            Field("rel", description="Whether the threshold is relative or absolute."),
        ),
        "cooldown": integer(0, "Validations after a reduction that are not counted.", ge=0),
        "min_lr": number(0.0, ETA_MIN, ge=0),
        "eps": number(1e-8, "Smallest change of the learning rate.", ge=0),
    },
    "StepLR": {
        "step_size": integer(..., "Steps of the schedule between decays.", ge=1),
        "gamma": GAMMA,
    },
}


def models_of(known: Mapping[str, Fields]) -> dict[str, type[Strict]]:
    """Return a model of the options of each name."""
    return {name: create_model(name, __base__=Strict, **each) for name, each in known.items()}


OPTIMIZER_OPTIONS, SCHEDULE_OPTIONS = models_of(OPTIMIZERS), models_of(SCHEDULES)


def by_name(models: Mapping[str, type[Strict]]) -> dict[str, Any]:
    """Return JSON Schema in which `name` decides what `options` may be."""
    return {
        "allOf": [
            {
                "if": {"properties": {"name": {"const": name}}, "required": ["name"]},
                "then": {"properties": {"options": _schema(model)}},
            }
            for name, model in models.items()
        ]
    }


def _schema(model: type[Strict]) -> dict[str, Any]:
    return {"properties": {}, **model.model_json_schema()}
