"""The tab Files: models first, and code that loads each format."""

from apps.dashboard import checkpoint_files
from tests.api.saved import saved
from tests.pages import making


def source_of(checkpoint):
    return checkpoint_files.source(checkpoint, "epoch 3", "training", "val_loss")


def test_models_are_listed_first_with_what_they_are(ana):
    checkpoint = saved(making.operation(ana, "COMPLETED"), type="final")
    checkpoint.manifest += [
        {"name": name, "size_bytes": 1, "blake3": "0" * 64} for name in ("adam.pt", "best_model.pt")
    ]
    checkpoint.state = {"best_metric": 0.02}
    files = source_of(checkpoint).files
    assert [(file.artifact.name, file.title) for file in files] == [
        ("best_model.pt", "Best model"),
        ("model.pt", "Last model"),
        ("state.json", ""),
        ("adam.pt", ""),
    ]
    assert (files[0].note, files[1].note) == ("val_loss 0.02", "epoch 3")


def test_best_models_are_named_by_their_metrics(ana):
    checkpoint = saved(making.operation(ana, "COMPLETED"), type="final")
    checkpoint.manifest += [
        {"name": f"{name}.pt", "size_bytes": 1, "blake3": "0" * 64}
        for name in ("best_model", "best_model_val_accuracy", "best_model_val_iou")
    ]
    lines = {"val_accuracy": {"best_metric": 0.9}, "val_iou": {"best_metric": None}}
    checkpoint.state = {"best_metric": 0.02, "monitored": lines}
    found = checkpoint_files.source(
        checkpoint, "epoch 3", "training", "val_loss", ["val_accuracy", "val_iou"]
    )
    assert [(file.title, file.note) for file in found.files][:4] == [
        ("Best model", "val_loss 0.02"),
        ("Best model by val_accuracy", "val_accuracy 0.9"),
        ("Best model by val_iou", ""),
        ("Last model", "epoch 3"),
    ]


def test_the_page_shows_code_with_the_names_of_the_downloads(page, ana):
    operation = making.operation(ana, "COMPLETED")
    checkpoint = saved(operation, type="final")
    text = page.get(f"/operations/{operation.pk}/").content.decode()
    shown = text.partition('data-testid="how-to-load"')[2].partition("</details>")[0]
    for name in ("model.pt", "state.json"):
        path = f"/operations/{operation.pk}/files/{checkpoint.pk}/{name}"
        named = page.get(path)["Content-Disposition"].partition('"')[2].rstrip('"')
        assert f"&quot;{named}&quot;" in shown
    assert shown.count('data-testid="snippet"') == 2 and "content = torch.load" not in shown
    digest = checkpoint.manifest[0]["blake3"]
    assert f'data-copy-text="{digest}"' in text
