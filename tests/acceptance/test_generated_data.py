"""Generated folders, analyzed in different ways; the independent checks agree with every analysis."""

import json
import os
import random
from pathlib import Path

import pytest

from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import builtin
from kopitiam.spark.installation import archive_path, find_java
from kopitiam.synthetic import generate
from oracle import plain_answers
from sampling import IS_FULL

MATRIX = [(scale, seed) for scale in (0.0005, 0.002) for seed in (1, 2, 3)]
SAMPLE = MATRIX if IS_FULL else random.Random(2024).sample(MATRIX, 1)


@pytest.mark.long
def test_the_answers_to_the_tiny_folder_equal_those_of_plain_python(
    tiny_folder, tiny_analyzed, answers_in, is_verified
):
    assert tiny_analyzed.run.code == 0, tiny_analyzed.run.stderr
    answers = answers_in(tiny_analyzed.out)
    assert all(answers.values())
    assert answers == plain_answers(tiny_folder, Parameters())
    assert is_verified(tiny_folder, tiny_analyzed.out)


@pytest.mark.long
@pytest.mark.parametrize(("scale", "seed"), SAMPLE)
def test_generated_folders_are_verified(kopi, is_verified, tmp_path, scale, seed):
    generate(tmp_path / "data", scale, seed)
    run = kopi("analyze", tmp_path / "data", "--out", tmp_path / "answers")
    assert (run.code, run.stderr) == (0, "")
    assert is_verified(tmp_path / "data", tmp_path / "answers")


@pytest.mark.long
def test_other_questions_have_other_answers(analyze_tiny, tiny_folder, answers_in, is_verified):
    tiny = analyze_tiny("--years", "2024", "--hours", "08:00-20:00", "--min-amount", "60.5", "--top", "5")
    assert (tiny.run.code, tiny.run.stderr) == (0, "")
    answers = answers_in(tiny.out)
    assert answers == plain_answers(tiny_folder, Parameters(2024, 2024, "08:00:00", "20:00:00", "60.5", 5))
    assert len(answers["4"]) == 5 * len({store for store, _ in answers["4"]})
    assert {month[:4] for month, *_ in answers["2_1"]} == {"2024"}
    assert is_verified(tiny_folder, tiny.out)  # the summary says what was asked


@pytest.mark.long
def test_neither_the_time_zone_nor_another_java_changes_anything_and_json_is_for_scripts(
    analyze_tiny, tiny_analyzed, without_java
):
    tiny = analyze_tiny("--json", "--verbose", env=without_java | {"TZ": "Asia/Kuala_Lumpur"})
    assert tiny.run.code == 0, tiny.run.stderr
    assert "Spark" in tiny.run.stderr  # --verbose lets it speak
    assert tiny.contents() == tiny_analyzed.contents()
    assert tiny.summary() == tiny_analyzed.summary()
    output = json.loads(tiny.run.stdout)
    assert output["summary"].items() >= tiny.summary().items()
    assert set(output["answers"]) == set(builtin())
    assert len(output["answers"]["4"]) == output["summary"]["answers"]["4"]


@pytest.mark.long
def test_spark_is_silent_unless_asked(tiny_analyzed):
    assert tiny_analyzed.run.stderr == ""
    assert "WARN" not in tiny_analyzed.run.stdout


@pytest.fixture
def without_java(environment, tmp_path, monkeypatch):
    """An environment without the system's Java, and with the class archive of another Java."""
    archive_of_another = archive_path(find_java(environment))
    monkeypatch.setenv("KOPI_CACHE", str(tmp_path))
    archive_path(find_java({})).symlink_to(archive_of_another)
    environment.pop("JAVA_HOME", None)
    commands = commands_but_java(environment["PATH"], tmp_path / "bin")
    return environment | {"PATH": str(commands), "KOPI_CACHE": str(tmp_path)}


def commands_but_java(path, folder):
    """A folder with all other commands of a PATH."""
    folder.mkdir()
    for place in filter(Path.is_dir, map(Path, path.split(os.pathsep))):
        for command in place.iterdir():
            link = folder / command.name
            if command.name != "java" and not link.is_symlink():
                link.symlink_to(command)
    return folder
