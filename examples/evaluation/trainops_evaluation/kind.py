"""Evaluation: scores the model of a finished training, batch by batch."""

from trainops.kind import Kind, Objective, Panel

WEB = "trainops_evaluation.web"

KIND = Kind(
    name="evaluation",
    label="Evaluation",
    description="Scores the model of a finished training on examples, one batch after another",
    unit="batch",
    config="trainops_evaluation.config:EvaluationConfig",
    job="trainops_evaluation.job:EvaluationJob",
    positions="trainops_evaluation.position",
    recipes=("trainops_evaluation.recipe:RECIPE",),
    objective=Objective("loss", "min"),
    columns=("examples",),
    files="trainops_evaluation.files:FILES",
    panels=(
        Panel(
            name="scores",
            template="evaluation/scores.html",
            view=f"{WEB}.panel:scores",
            shows_result=True,
            shows_figures=True,
        ),
    ),
    web=WEB,
)
