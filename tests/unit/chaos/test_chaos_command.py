"""`kopi chaos` on the command line: the errors that keep it from starting."""

import pytest

from kopi_command import run_kopi

pytestmark = pytest.mark.slow

FLEET = 'home = "{home}"\n[nodes]\nservices = ["rabbitmq"]\n'


@pytest.fixture
def kopi(tmp_path):
    config = tmp_path / "fleet.toml"

    def kopi(*arguments, text=FLEET):
        config.write_text(text.format(home=tmp_path / "home"), encoding="utf-8")
        return run_kopi(["chaos", "--config", config, *arguments], tmp_path, {})

    return kopi


def test_a_fleet_that_is_not_running_gives_exit_code_3_and_one_line(kopi, tmp_path):
    code, shown, complaint = kopi("--json")
    assert (code, shown) == (3, "")
    assert complaint.startswith("kopi: the fleet is not up: gateway-1 is stopped, pipeline-1 is stopped")
    assert complaint.endswith("bring it up with: kopi cluster up\n")
    assert complaint.count("\n") == 1
    assert not (tmp_path / "home").exists()


def test_an_unknown_target_gives_exit_code_2_and_one_line(kopi):
    code, shown, complaint = kopi("--targets", "gateway,nobody")
    assert (code, shown) == (2, "")
    groups = "gateway, pipeline, monitor, rabbitmq, leader"
    assert complaint.startswith(f"kopi: --targets nobody: expected some of {groups}, gateway-1")
    assert complaint.count("\n") == 1


def test_a_fleet_without_monitors_is_refused(kopi):
    complaint = "kopi: nodes.monitors: without one no node is revived\n"
    assert kopi(text=FLEET + "monitors = []\n") == (2, "", complaint)


@pytest.mark.parametrize("flags", [("--kills", "0"), ("--clients", "0"), ("--seed", "-1")])
def test_values_out_of_range_give_exit_code_2(kopi, flags):
    assert kopi(*flags)[0] == 2
