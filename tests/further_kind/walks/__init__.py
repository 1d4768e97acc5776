"""A kind with subtasks that is not federated training."""
