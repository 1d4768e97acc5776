import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainops.cli import submission
from trainops.client.problems import ExitCode, Problem, Refused
from trainops.plain_yaml import MAX_BITS, dumped, parsed

FILE = """\
kind: training
name: A name
config:
  recipe: digits
  learning_rate: 1e-3
  layers: [64, 32]
  parameters:
    dropout: 0.5
"""


@pytest.fixture
def read(tmp_path):
    def read(text, encoding="utf-8"):
        path = tmp_path / "wish.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        return submission.read(path)

    return read


def refused(fields):
    return Refused("INVALID_CONFIG", "no", ExitCode.USAGE, fields=fields)


def test_a_file_becomes_the_body_of_the_request(read):
    assert read(FILE).body == {
        "kind": "training",
        "name": "A name",
        "config": {
            "recipe": "digits",
            "learning_rate": 0.001,
            "layers": [64, 32],
            "parameters": {"dropout": 0.5},
        },
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("2E5", 2e5),
        ("-1.5e+2", -150.0),
        (".5e1", 5.0),
        ("e3", "e3"),
        ("1e", "1e"),
        ("2024-01-31", "2024-01-31"),
        ("5", 5),
        ("0", 0),
        ("-7", -7),
        ("0x10", 16),
        ("010", "010"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("1.", 1.0),
        ("1.5", 1.5),
        ("1.2.3", "1.2.3"),
        ("no", "no"),
        ("on", "on"),
        ("True", True),
        ("~", None),
        ("true", True),
        ("null", None),
        ("[1, 2]", [1, 2]),
        ("", None),
        ("'5'", "5"),
        ("a=b", "a=b"),
    ],
)
def test_a_value_of_set_is_a_yaml_scalar_as_people_mean_it(read, text, value):
    wish = read(FILE)
    wish.assign(f"field={text}")
    assert wish.body["config"]["field"] == value
    assert type(wish.body["config"]["field"]) is type(value)


def test_set_reaches_into_fields_and_lists_and_makes_what_is_missing(read):
    wish = read(FILE)
    for typed in ("parameters.dropout=0.1", "layers.1=16", "checkpoint.every_epochs=2"):
        wish.assign(typed)
    config = wish.body["config"]
    assert config["parameters"] == {"dropout": 0.1}
    assert config["layers"] == [64, 16]
    assert config["checkpoint"] == {"every_epochs": 2}


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("epochs", "PATH=VALUE"),
        ("=5", "PATH=VALUE"),
        ("a..b=5", "PATH=VALUE"),
        ("config.epochs=5", "paths start inside config: epochs=5"),
        ("layers.2=5", "'2' is not an index of a list of 2"),
        ("layers.x=5", "'x' is not an index of a list of 2"),
        ("recipe.name=5", "recipe is text and has no fields"),
        ("parameters.dropout.x.y=5", "parameters.dropout is a number and has no fields"),
        ("epochs=[1", "not YAML"),
        ("epochs=.inf", "inf is not a usable number"),
        (r'name="\ud800"', "a lone surrogate"),
    ],
)
def test_a_set_that_leads_nowhere_says_why(read, typed, message):
    with pytest.raises(Problem) as problem:
        read(FILE).assign(typed)
    assert message in str(problem.value)
    assert str(problem.value).startswith(f"--set {typed}: ")
    assert problem.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: training\nconfig: {a: [1}\n", "wish.yaml:2: not YAML"),
        ("kind: training\nepochs: 5\n", "wish.yaml:2: epochs: there is no such field"),
        ("kind: training\nepochs: 5\n", "Does it belong under config:?"),
        ("kind: training\nconfig: 5\n", "wish.yaml:2: config: must contain fields, not a number"),
        ("- a\n", "must contain fields such as kind and config, not a list"),
        ("", "must contain fields such as kind and config, not nothing"),
        ("config:\n  epochs: 1\n  epochs: 2\n", "wish.yaml:3: not YAML: epochs is given twice"),
        ("config: !!python/object/apply:os.system [ls]\n", "wish.yaml:1: not YAML"),
        ("a: 1\n---\nb: 2\n", "not YAML"),
        (b"kind: \xff\n", "byte 6 is not UTF-8"),
        ("config: &a [*a]\n", "wish.yaml:1: not YAML: aliases (*) are not supported"),
        ("kind: a\nconfig: {x: .nan}\n", "wish.yaml:2: config.x: nan is not a usable number"),
        ("config:\n  x: !!binary aGk=\n", "wish.yaml:2: config.x: a bytes cannot be used"),
        ("config:\n  x: !!set {a}\n", "wish.yaml:2: config.x: a set cannot be used"),
        ("config:\n  true: 1\n", "the name True is not a string"),
        (f"config: {'[' * 5000}", "not YAML"),
        (f"config: {'1' * 5000}", "not YAML"),
    ],
)
def test_a_file_that_is_none_is_refused_with_its_line(read, text, message):
    with pytest.raises(Problem) as problem:
        read(text)
    assert message in str(problem.value)
    assert problem.value.exit_code == ExitCode.USAGE


def test_a_file_that_is_not_there_and_a_directory_are_named(tmp_path):
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(Problem, match=str(path)):
            submission.read(path)


def test_a_refusal_names_the_line_that_it_is_about(read):
    problem = read(FILE).explain(
        refused({"parameters.dropout": "got 5", "layers.1": "got x", "kind": "no", "epochs": "?"})
    )
    assert str(problem).endswith("wish.yaml:8: parameters.dropout: got 5")
    assert [hint.rsplit("/", 1)[-1] for hint in problem.hints] == [
        "wish.yaml:6: layers.1: got x",
        "wish.yaml:1: kind: no",
        "wish.yaml: epochs: ?",
    ]


def test_a_refusal_of_a_set_names_the_set(read):
    wish = read(FILE)
    wish.assign("epoch=5")
    problem = wish.explain(refused({"epoch": "there is no such field (did you mean epochs?)"}))
    assert str(problem) == ("--set epoch=5: epoch: there is no such field (did you mean epochs?)")


def test_a_section_is_added_and_one_without_fields_is_refused():
    wish = submission.Submission({"design": {"values": None, "seed": [1]}}, "wish.yaml")
    design = wish.section("design")
    submission.section_of(design, "values", wish.source)["a"] = [1, 2]
    assert wish.body == {"design": {"values": {"a": [1, 2]}, "seed": [1]}}
    with pytest.raises(Problem, match=r"wish.yaml: seed: must contain fields, not a list"):
        submission.section_of(design, "seed", wish.source)


@pytest.mark.parametrize(
    ("given", "sent"), [(None, ["b"]), (["a"], ["a", "b"]), ("a", "a")], ids=str
)
def test_tags_are_added_to_a_list_and_anything_else_is_left_to_the_server(given, sent):
    wish = submission.Submission({"tags": given}, "wish.yaml")
    wish.add_tags(["b"])
    assert wish.body["tags"] == sent


INTEGERS = st.integers(1 - 2**MAX_BITS, 2**MAX_BITS - 1)
VALUES = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc_", min_size=1), inner),
    max_leaves=10,
)  # fmt: skip


@pytest.mark.slow
@given(VALUES)
def test_whatever_json_can_hold_can_be_set(value):
    wish = submission.Submission({}, "wish.yaml")
    wish.assign(f"field={json.dumps(value, ensure_ascii=False)}")
    assert wish.body["config"]["field"] == value


TEXTS = [
    "1e-3", "no", "1:30", "010", "2024-01-31", "~", "0x1F", ".inf", "1_000", "=", "<<", "", " a",
    "null", "*a", "a: b", "a\nb\n", "# a", "é", "\u2028", "\x00",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_written_as_they_are_read(text):
    for value in ({text: text}, [[text]], text):
        assert parsed(dumped(value))[0] == value


@pytest.mark.parametrize("value", [None, True, 0, -(2**63), 1e-7, 1e300, 0.1, [], {}, [{}]])
def test_plain_values_are_written_as_they_are_read(value):
    (found,) = parsed(dumped([value]))[0]
    assert found == value and type(found) is type(value)
