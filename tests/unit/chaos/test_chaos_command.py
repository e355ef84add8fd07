"""`kopi chaos` as a person types it where it cannot begin."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

KOPI = Path(sys.executable).with_name("kopi")
FLEET = 'home = "{home}"\n[nodes]\nservices = ["rabbitmq"]\n'


@pytest.fixture
def kopi(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KOPI_")}
    config = tmp_path / "fleet.toml"

    def kopi(*words, text=FLEET):
        config.write_text(text.format(home=tmp_path / "home"), encoding="utf-8")
        done = subprocess.run(
            [KOPI, "chaos", "--config", config, *words],
            env=environment | {"COLUMNS": "120"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return kopi


def test_a_fleet_that_does_not_run_is_told_with_3_and_one_line(kopi, tmp_path):
    code, shown, complaint = kopi("--json")
    assert (code, shown) == (3, "")
    assert complaint.startswith("kopi: the fleet is not up: gateway-1 is stopped, pipeline-1 is stopped")
    assert complaint.endswith("bring it up with: kopi cluster up\n")
    assert complaint.count("\n") == 1
    assert not (tmp_path / "home").exists()


def test_a_target_that_there_is_not_is_refused_with_2_and_one_line(kopi):
    code, shown, complaint = kopi("--targets", "gateway,nobody")
    assert (code, shown) == (2, "")
    groups = "gateway, pipeline, monitor, rabbitmq, leader"
    assert complaint.startswith(f"kopi: --targets nobody: want some of {groups}, gateway-1")
    assert complaint.count("\n") == 1


def test_a_fleet_without_monitors_is_refused_since_nobody_would_be_revived(kopi):
    complaint = "kopi: nodes.monitors: without one no node is revived\n"
    assert kopi(text=FLEET + "monitors = []\n") == (2, "", complaint)


@pytest.mark.parametrize("flags", [("--kills", "0"), ("--clients", "0"), ("--seed", "-1")])
def test_what_makes_no_sense_is_refused_with_2(kopi, flags):
    assert kopi(*flags)[0] == 2
