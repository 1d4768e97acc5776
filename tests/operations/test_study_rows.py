"""Studies from before their trials were rows."""

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from apps.operations.models import Study
from apps.operations.studies import services as studies
from tests.ledger.test_migration import migrated

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database, pytest.mark.slow]


@pytest.mark.usefixtures("in_process")
def test_the_operations_of_a_study_are_its_trials_and_more_follow_only_on_request(person):
    design = {"values": {"seed": {"low": 1, "high": 99, "whole": True}}, "method": "random"}
    study = studies.create(
        kind="training", config={"recipe": "digits"}, owner=person, design=design | {"samples": 3}
    )
    migrated([("operations", "0022_exploding_norm")])
    migrated(MigrationExecutor(connection).loader.graph.leaf_nodes())
    study = Study.objects.get()
    assert study.num_trials == study.suggestions.count() == study.operations.count() == 3
    assert all(each.operation.study_values == each.values for each in study.suggestions.all())
    assert studies.advance(study.pk) == 0
    assert studies.extend(study_id=study.pk, trials=2, actor=person) == 2
