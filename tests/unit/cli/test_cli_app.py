"""The `kopi` command as a process: exit codes, one clear line, and no Java before the input is sound."""

import json
import os
from dataclasses import asdict

import pytest
from typer.core import TyperGroup

from kopi_command import run_kopi
from kopitiam import __version__
from kopitiam.cli.commands import COMMANDS, load_command
from kopitiam.questions.catalog import builtin
from kopitiam.synthetic import WildShape

pytestmark = pytest.mark.slow


@pytest.fixture
def java_trap(tmp_path):
    """A Java home that passes for a good one and leaves a mark when it is started."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="21.0.2"\n')
    (home / "bin" / "java").write_text(
        f'#!/bin/sh\n: > "{home}/started"\necho "this is no Java" >&2\nexit 1\n'
    )
    (home / "bin" / "java").chmod(0o755)
    return home


@pytest.fixture
def kopi(tmp_path, java_trap):
    """Runs the command in an empty folder; gives exit code, stdout, stderr."""
    here = tmp_path / "here"
    here.mkdir()

    def kopi(*arguments, **more):
        java = {"JAVA_HOME": str(java_trap), "PATH": f"{java_trap / 'bin'}:{os.environ['PATH']}"}
        return run_kopi(arguments, here, java | more, columns=100)

    return kopi


def assert_refused(outcome, complaint):
    code, stdout, stderr = outcome
    assert (code, stdout) == (2, "")
    assert stderr == f"kopi: {complaint}\n"


def without_stores(folder):
    folder.joinpath("stores", "stores.csv").unlink()
    folder.joinpath("stores").rmdir()


def without_files(folder):
    folder.joinpath("stores", "stores.csv").unlink()


def with_stores(content):
    def damage(folder):
        folder.joinpath("stores", "stores.csv").write_bytes(content)

    return damage


def with_two_folders(folder):
    folder.joinpath("7.stores").mkdir()


def with_dangling_link(folder):
    folder.joinpath("stores", "stores_2.csv").symlink_to("nowhere")


DAMAGES = {
    "missing table": (
        without_stores,
        "{}: no table stores; expected a folder stores/ with stores.csv or stores_YYYYMM.csv",
    ),
    "no file": (without_files, "{}/stores: no CSV file here; expected stores.csv or stores_YYYYMM.csv"),
    "table twice": (with_two_folders, "{}: table stores is there twice: 7.stores/ and stores/"),
    "dangling link": (
        with_dangling_link,
        "{}/stores/stores_2.csv: cannot be read: No such file or directory",
    ),
    "empty file": (with_stores(b""), "stores/stores.csv: the file is empty, without even a header line"),
    "missing column": (
        with_stores(b"store_id,name\n1,A\n"),
        "stores/stores.csv, line 1: no column store_name (found: store_id, name)",
    ),
    "column twice": (
        with_stores(b"store_id,store_name,store_id\n"),
        "stores/stores.csv, line 1: column store_id is there twice",
    ),
    "latin-1": (
        with_stores(b"store_id,store_name\n1,A\n2,Caf\xe9\n"),
        "stores/stores.csv, line 3, column store_name: not UTF-8 text; save the file as UTF-8",
    ),
    "binary": (with_stores(b"PK\x03\x04\n\x00"), "stores/stores.csv, line 2: a binary file, not CSV"),
    "open quote in a row": (
        with_stores(b'store_id,store_name\n1,A\n2,"B\n3,C\n'),
        "{}/stores/stores.csv, line 3: a quote is opened here and not closed",
    ),
    "open quote": (
        with_stores(b'store_id,"store_name\n1,A\n'),
        "{}/stores/stores.csv, line 1: a quote is opened in the header and not closed",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_flaw_of_structure_ends_analyze_with_2_and_one_line_before_java_starts(
    kopi, sound_folder, java_trap, tmp_path, damage
):
    do_damage, complaint = DAMAGES[damage]
    do_damage(sound_folder)
    assert_refused(kopi("analyze", sound_folder, "--out", tmp_path / "out"), complaint.format(sound_folder))
    assert not (java_trap / "started").exists()


def test_a_path_that_is_no_folder_is_refused(kopi, tmp_path, sound_folder):
    tmp_path.joinpath("empty").mkdir()
    file = sound_folder / "stores" / "stores.csv"
    assert_refused(kopi("analyze", tmp_path / "none"), f"{tmp_path / 'none'}: no such folder")
    assert_refused(kopi("analyze", file), f"{file}: is a file, not a folder")
    code, stdout, stderr = kopi("analyze", tmp_path / "empty")
    assert (code, stdout, stderr.count("\n")) == (2, "", 1)
    assert stderr.startswith(f"kopi: {tmp_path / 'empty'}: the folder is empty; expected folders stores")


def test_an_unwritable_output_folder_is_refused_before_java_starts(kopi, sound_folder, java_trap):
    out = sound_folder / "stores" / "stores.csv" / "out"
    assert_refused(
        kopi("analyze", sound_folder, "--out", out), f"{out}: cannot write answers there: Not a directory"
    )
    assert not (java_trap / "started").exists()


def test_a_java_that_does_not_run_spark_ends_analyze_with_1_and_one_line(kopi, sound_folder, java_trap):
    code, stdout, stderr = kopi("analyze", sound_folder)
    assert (java_trap / "started").exists()
    assert (code, stdout) == (1, "")
    assert stderr.startswith(f"kopi: Spark did not start with the Java in {java_trap}: ")
    assert stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--years", "2025-2024"], "years 2025-2024: expected first-last, such as 2024-2025"),
        (["--config", "none.toml"], "none.toml: cannot be read: No such file or directory"),
    ],
)
def test_an_invalid_parameter_ends_with_2_and_one_line(kopi, sound_folder, flags, complaint):
    assert_refused(kopi("analyze", sound_folder, *flags), complaint)


OWN = """[[question]]
name = "totals"
title = "Totals"
from = "transactions"
measure = { revenue = "sum(finalamount)" }
columns = ["revenue"]
"""


@pytest.mark.parametrize(
    "command", [("questions",), ("analyze", "exports", "--questions"), ("submit", "exports", "--questions")]
)
def test_a_flaw_of_a_question_ends_with_2_and_one_line_before_a_folder_is_read(kopi, tmp_path, command):
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    assert_refused(
        kopi(*command, path),
        f"{path}, line 5: question totals, measure.revenue: transactions has no column finalamount; "
        "did you mean final_amount?",
    )


def test_an_unknown_question_ends_with_2_and_one_line(kopi, sound_folder, java_trap):
    assert_refused(
        kopi("analyze", sound_folder, "--ask", "5"),
        "ask: there is no question '5'; there are 1, 2_1, 2_2, 3, 4",
    )
    assert not (java_trap / "started").exists()


def test_a_table_that_no_question_needs_may_be_missing(kopi, sound_folder, java_trap):
    without_stores(sound_folder)
    refused = kopi("analyze", sound_folder, "--ask", "3")
    assert "no table stores" in refused[2]
    kopi("analyze", sound_folder, "--ask", "1")
    assert (java_trap / "started").exists()


def test_questions_shows_the_catalog(kopi):
    code, stdout, stderr = kopi("questions")
    assert (code, stderr) == (0, "")
    assert "Q2.1  Best-selling product per month" in stdout


def test_an_unknown_crash_point_ends_with_2_and_one_line(kopi):
    code, _, stderr = kopi("--version", KOPI_CRASH_AT="nowhere")
    assert (code, stderr.count("\n")) == (2, 1)
    assert stderr.startswith("kopi: KOPI_CRASH_AT=nowhere: expected one of chunk.begun, ")


@pytest.mark.parametrize("arguments", [["--bogus"], ["brew"], ["analyze"], ["analyze", "x", "--top", "many"]])
def test_an_invalid_command_line_ends_with_2(kopi, arguments):
    code, stdout, stderr = kopi(*arguments)
    assert (code, stdout) == (2, "")
    assert stderr.startswith("Usage: kopi")
    assert "Traceback" not in stderr


def test_help_shows_how_to_begin(kopi):
    code, stdout, stderr = kopi("--help")
    assert (code, stderr) == (0, "")
    assert "kopi generate --out data" in stdout
    assert "kopi analyze data --out answers" in stdout


@pytest.mark.parametrize(
    ("command", "examples"),
    [
        ("analyze", ["kopi analyze exports --out answers", "[default: 2024-2025]", "[default: 75]"]),
        ("generate", ["kopi generate --out data", "--profile wild --seed 12 --json", "[default: real]"]),
        ("verify", ["kopi verify exports answers", "--questions", "--ask"]),
        ("submit", ["kopi submit exports --questions mine.toml --ask sales_by_hour"]),
        ("questions", ["kopi questions mine.toml"]),
    ],
)
def test_help_of_a_command_shows_examples_and_defaults(kopi, command, examples):
    code, stdout, stderr = kopi(command, "--help")
    assert (code, stderr) == (0, "")
    assert all(example in stdout for example in examples)


def test_the_version_is_shown(kopi):
    assert kopi("--version") == (0, f"kopi {__version__}\n", "")


def test_generate_refuses_a_folder_that_is_not_empty(kopi, sound_folder):
    before = sorted(sound_folder.rglob("*"))
    code, stdout, stderr = kopi("generate", "--out", sound_folder, "--scale", "0.0001")
    assert (code, stdout, stderr.count("\n")) == (2, "", 1)
    assert str(sound_folder) in stderr
    assert sorted(sound_folder.rglob("*")) == before


def test_generate_prints_the_shape_of_wild_data(kopi, tmp_path):
    wild = ("generate", "--profile", "wild", "--scale", "0.0001", "--seed", "2", "--json")
    code, stdout, stderr = kopi(*wild, "--out", tmp_path / "wild")
    assert (code, stderr) == (0, "")
    told = json.loads(stdout)
    assert told["profile"] == "wild"
    assert told["shape"] == json.loads(json.dumps(asdict(WildShape.of_seed(2))))
    code, stdout, _ = kopi("generate", "--scale", "0.0001", "--json", "--out", tmp_path / "real")
    assert (code, json.loads(stdout)["profile"], "shape" in json.loads(stdout)) == (0, "real", False)


def test_generate_refuses_an_unknown_profile(kopi, tmp_path):
    code, stdout, stderr = kopi("generate", "--profile", "tame", "--out", tmp_path / "tame")
    assert (code, stdout) == (2, "")
    assert "'real', 'wild'" in stderr
    assert not (tmp_path / "tame").exists()


def test_verify_ends_with_0_if_all_is_equal_and_with_1_if_not(kopi, sound_folder, tmp_path):
    answers = tmp_path / "answers"
    answers.mkdir()
    rows = {
        "1": "a,80.5",
        "2_1": "2024-01,Espresso,2",
        "2_2": "2024-01,Espresso,80.5",
        "3": "2024-H1,North,80.5",
        "4": "North,1990-01-01",
    }
    for name, row in rows.items():
        question = builtin()[name]
        (answers / question.file_name("csv")).write_text(f"{','.join(question.shown)}\n{row}\n")
    code, stdout, stderr = kopi("verify", sound_folder, answers)
    assert (code, stderr) == (0, "")
    assert stdout.count("equal") == 5

    (answers / "results_query_1.csv").write_text("transaction_id,final_amount\na,80.4\n")
    code, stdout, stderr = kopi("verify", sound_folder, answers)
    assert code == 1
    assert "results_query_1.csv: expected a, 80.5 – not there" in stdout
    assert stderr == f"kopi: the answers in {answers} differ from those of {sound_folder}\n"


def test_verify_refuses_missing_folders(kopi, sound_folder, tmp_path):
    assert_refused(kopi("verify", sound_folder, tmp_path / "none"), f"{tmp_path / 'none'}: no such folder")


NODES = {"gateway", "pipeline", "monitor"}  # they log, and show nothing


def every_command():
    for entry in COMMANDS:
        command = load_command(entry.name)
        if isinstance(command, TyperGroup):
            for name, inner in command.commands.items():
                yield pytest.param(inner, id=f"{entry.name} {name}")
        elif entry.name not in NODES:
            yield pytest.param(command, id=entry.name)


@pytest.mark.parametrize("command", every_command())
def test_a_command_takes_json_and_config(command):
    flags = {flag for parameter in command.params for flag in parameter.opts}
    assert {"--json", "--config"} <= flags
