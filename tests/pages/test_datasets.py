"""Tables: uploaded, listed, looked at, deleted."""

from io import BytesIO

import numpy as np
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from apps.datasets.models import Dataset

pytestmark = pytest.mark.usefixtures("in_process")

CSV = b"name,size\n<b>x</b>,1\ny,2\n,3\n"


def upload(client, content=CSV, filename="t.csv", **data):
    file = SimpleUploadedFile(filename, content)
    return client.post("/datasets/upload", {"file": file, **data})


def test_an_upload_shows_its_table(page):
    response = upload(page, name="flats")
    dataset = Dataset.objects.get()
    assert response.url == f"/datasets/{dataset.pk}/"
    text = page.get(response.url).content.decode()
    assert "flats is stored: 3 rows, 2 columns." in text
    assert "&lt;b&gt;x&lt;/b&gt;" in text and "<b>x</b>" not in text
    assert text.count('data-testid="column"') == 2
    assert "flats" in page.get("/datasets/").content.decode()


def test_a_script_gets_what_it_needs_to_choose_it(fetch):
    answer = upload(fetch, name="flats").json()
    assert answer == {"id": Dataset.objects.get().pk, "label": "flats (3 rows)"}


@pytest.mark.parametrize("content", [b"", b"a,b\n", b"a,a\n1,2\n", b"PK\x03\x04zip"])
def test_a_bad_file_is_told_beside_the_field(page, content):
    response = upload(page, content, name="kept")
    text = response.content.decode()
    assert response.status_code >= 400 and 'data-testid="field-error"' in text
    assert 'value="kept"' in text and not Dataset.objects.exists()


def test_a_bad_file_is_told_to_a_script(fetch):
    response = upload(fetch, b"a,a\n1,2\n")
    assert response.status_code == 400 and response.json()["level"] == "error"


def test_no_file_at_all(page, db):
    assert "Choose a CSV, Parquet or NPZ file" in page.post("/datasets/upload").content.decode()


def test_an_empty_list_says_what_to_do(page, db):
    assert "No datasets yet" in page.get("/datasets/").content.decode()


def test_an_unknown_one_is_a_404(page, db):
    assert page.get("/datasets/ds_0000000000000000/").status_code == 404


def test_deleted_by_its_owner_only(page, as_, ben, vera):
    upload(page)
    path = f"/datasets/{Dataset.objects.get().pk}/delete"
    as_(ben).post(path)
    assert as_(vera).post(path).status_code == 403
    assert page.get(path).status_code == 405
    assert Dataset.objects.exists()
    assert page.post(path).url == "/datasets/"
    assert not Dataset.objects.exists()


def test_viewers_do_not_upload(as_, vera):
    assert upload(as_(vera)).status_code == 403
    assert "upload-form" not in as_(vera).get("/datasets/").content.decode()


def test_images_are_shown_with_what_is_known_of_them(page):
    images = np.arange(3 * 64, dtype=np.uint8).reshape(3, 8, 8)
    file = BytesIO()
    np.savez(file, images=images, labels=np.array(["<b>cat</b>", "dog", "dog"]), masks=images > 9)
    response = upload(page, file.getvalue(), "pets.npz")
    text = page.get(response.url).content.decode()
    assert text.count('data-testid="picture"') == 3
    assert text.count('src="data:image/png;base64,') == 6, "images and masks"
    assert "8 x 8 pixels, 1 channel, uint8" in text and "3 images" in text
    assert text.count('data-testid="count"') == 2
    assert text.count("<span>label dog</span>") == 2, "what a value is of stands beside it"
    assert "&lt;b&gt;cat&lt;/b&gt;" in text and "<b>cat" not in text
    assert f"recipe=segmentation&dataset={Dataset.objects.get().pk}" in text


def test_images_without_masks_are_offered_to_be_told_apart(page):
    file = BytesIO()
    np.savez(file, images=np.zeros((2, 8, 8, 3), np.uint8), labels=np.arange(2))
    text = page.get(upload(page, file.getvalue()).url).content.decode()
    assert "recipe=images&amp;" in text or "recipe=images&dataset" in text
