"""Metric points of operations as files of other tools: TensorBoard, MLflow, Weights & Biases."""
