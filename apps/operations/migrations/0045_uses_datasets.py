"""Whether an operation uses datasets as a column, which claims compare.

Rows of earlier versions keep False: a worker without the dataset storage claims them and hands them
back, as before. To fill them in, processes of earlier versions would have to be stopped.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("operations", "0044_chart_choices"),
    ]

    operations = [
        migrations.AddField(
            model_name="operation",
            name="uses_datasets",
            field=models.BooleanField(
                db_default=False, default=False, help_text="Whether its config names datasets."
            ),
        ),
    ]
