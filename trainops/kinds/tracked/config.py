"""What is known of a run of another tool. Without torch."""

from typing import Literal

from pydantic import Field, JsonValue

from trainops.runtime.config import OperationConfig


class TrackedConfig(OperationConfig):
    """The tool and the run, and the parameters that it had there."""

    tool: Literal["tensorboard", "mlflow", "wandb"] = Field(description="Tool that tracked it.")
    run: str = Field(max_length=200, description="Id or directory of the run there.")
    tool_status: str = Field("", max_length=40, description="Status that the tool gave the run.")
    parameters: dict[str, JsonValue] = Field({}, description="Parameters of the run there.")
