"""Tables: uploaded, listed, looked at, deleted."""

import re
from io import BytesIO

import numpy as np
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from apps.datasets.directories import child, registration
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
    assert "Stored “flats”: 3 rows, 2 columns." in text
    assert "&lt;b&gt;x&lt;/b&gt;" in text and "<b>x</b>" not in text
    assert text.count('data-testid="column"') == 2
    assert "flats" in page.get("/datasets/").content.decode()


def test_a_column_of_numbers_has_its_distribution(page):
    upload(page, b"size,name,same\n1,a,5\n2,b,5\n2,c,5\n4,d,5\n")
    dataset = Dataset.objects.get()
    text = page.get(f"/datasets/{dataset.pk}/").content.decode()
    assert text.count('data-testid="histogram"') == 1, "not of texts and of one value"
    assert 'aria-label="4 bins from 1 to 4; most rows: 2 rows at 2"' in text
    drawn = text.partition('data-testid="histogram"')[2].partition("</svg>")[0]
    assert re.findall("<title>(.*?)</title>", drawn) == ["1: 1 row", "2: 2 rows", "4: 1 row"]
    assert re.findall(r'height="([\d.]+)"', drawn) == ["14.0", "28.0", "14.0"]


@pytest.mark.parametrize(
    ("numbers", "titles"),
    [
        (range(0, 64, 8), ["0 to 1: 1 row", "8 to 9: 1 row", "16 to 17: 1 row"]),
        (("1.0", "2.0", "4.0"), ["1 to 2: 1 row", "2 to 3: 1 row", "4 to 5: 1 row"]),
        (("1.5", "2.0"), ["1.5 to 1.531: 1 row", "2 to 2.031: 1 row"]),
    ],
)
def test_bins_of_whole_numbers_are_named_by_whole_numbers(page, numbers, titles):
    upload(page, "\n".join(["size", *map(str, numbers)]).encode())
    text = page.get(f"/datasets/{Dataset.objects.get().pk}/").content.decode()
    assert re.findall("<title>(.*?)</title>", text.partition("<svg")[2])[: len(titles)] == titles


@pytest.mark.parametrize("content", [b"", b"a,b\n", b"a,a\n1,2\n", b"PK\x03\x04zip"])
def test_a_bad_file_is_reported_beside_the_field(page, content):
    response = upload(page, content, name="kept")
    text = response.content.decode()
    assert response.status_code >= 400 and 'data-testid="field-error"' in text
    assert 'value="kept"' in text and not Dataset.objects.exists()


def test_no_file_at_all(page, db):
    assert (
        "Choose a CSV, Parquet, NPZ or text file" in page.post("/datasets/upload").content.decode()
    )


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


def test_a_file_is_text_where_the_box_says_so(page):
    content = b"To be, or not to be:\nthat is the question\n"
    response = upload(page, content, "play.txt", is_text="1")
    dataset = Dataset.objects.get()
    assert (dataset.format, dataset.num_rows, dataset.num_columns) == ("text", 2, 1)
    text = page.get(response.url).content.decode()
    assert "that is the question" in text and "characters" in text
    assert upload(page, content, "play.txt").status_code == 400  # as a table it has ragged rows


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


def test_images_without_masks_are_offered_for_classification(page):
    file = BytesIO()
    np.savez(file, images=np.zeros((2, 8, 8, 3), np.uint8), labels=np.arange(2))
    text = page.get(upload(page, file.getvalue()).url).content.decode()
    assert "recipe=images&amp;" in text or "recipe=images&dataset" in text


@pytest.fixture
def pets(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(registration, "call", lambda module, request, _: child.answer(request))
    settings.DATASET_ROOTS = (tmp_path,)
    for label in ("<b>cat", "dog"):
        (tmp_path / "pets" / label).mkdir(parents=True)
        (tmp_path / "pets" / label / "1.png").write_bytes(b"...")
    return tmp_path / "pets"


def test_a_registered_directory_shows_its_classes_and_first_files(page, pets):
    found, _ = registration.add_or_find(str(pets))
    text = page.get(f"/datasets/{found.pk}/").content.decode()
    assert "Images in class folders · 2 files · 6" in text and str(pets) in text
    assert text.count('data-testid="count"') == 2
    assert "&lt;b&gt;cat/1.png" in text and "<b>cat" not in text
    assert f'href="/datasets/{found.pk}/"' in page.get("/datasets/").content.decode()
    link = f"/operations/new?recipe=image_folders&dataset={found.pk}"
    assert link in text.replace("&amp;", "&")
    form = page.get(link).content.decode()
    assert f'<option value="{found.pk}" selected>pets (2 files)' in form


def test_a_directory_is_verified_by_a_sample_or_whole(page, pets):
    found, _ = registration.add_or_find(str(pets))
    path = f"/datasets/{found.pk}/verify"
    shown = " ".join(page.post(path, {"sample": "1", "seed": "7"}).content.decode().split())
    assert "No difference was found." in shown and 'value="7"' in shown
    assert "Read 1 of 2 files (3 B of 6 B). Drawn with the seed 7." in shown
    (pets / "<b>cat" / "1.png").write_bytes(b"!!!")
    shown = " ".join(page.post(path).content.decode().split())
    assert "&lt;b&gt;cat/1.png has another content" in shown and "<b>cat" not in shown
    assert "Read 2 of 2 files (6 B of 6 B). Names" in shown


def test_a_wrong_sample_is_shown_beside_its_field(page, pets):
    found, _ = registration.add_or_find(str(pets))
    response = page.post(f"/datasets/{found.pk}/verify", {"fraction": "7"})
    text = response.content.decode()
    assert response.status_code == 400 and 'value="7"' in text
    assert (
        "got 7.0; allowed: above 0 and at most 1" in text and 'data-testid="verified"' not in text
    )


def test_viewers_verify_nothing(as_, vera, pets):
    found, _ = registration.add_or_find(str(pets))
    assert "verify-form" not in as_(vera).get(f"/datasets/{found.pk}/").content.decode()
    assert as_(vera).post(f"/datasets/{found.pk}/verify").status_code == 403


def test_a_directory_is_no_choice_for_a_table_and_the_other_way_round(page):
    upload(page, name="flats")
    table = Dataset.objects.get()
    form = page.get("/operations/new?recipe=large_table").content.decode()
    assert f'value="{table.pk}"' not in form and "register one with datasets add" in form
    form = page.get("/operations/new?recipe=tabular").content.decode()
    assert f'value="{table.pk}"' in form
