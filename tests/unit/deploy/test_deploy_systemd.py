"""The systemd unit: the command that it runs, and the units that monitors may restart."""

import re
import shlex
import shutil
import subprocess
from configparser import RawConfigParser

import pytest
from deployments import DEPLOY, NODES, dotenv, parse_kopi, revival, settings_of

from debian import can_install, install, skip_or_fail

FOLDER = DEPLOY / "systemd"
CONFIG = FOLDER / "kopitiam.toml"


@pytest.fixture(scope="module")
def unit():
    parser = RawConfigParser(strict=False)
    parser.optionxform = str
    parser.read_string((FOLDER / "kopi@.service").read_text(encoding="utf-8"))
    return parser


@pytest.fixture
def settings(monkeypatch):
    return settings_of(CONFIG, dotenv(FOLDER / "secrets.env.example"), monkeypatch)


@pytest.mark.parametrize("name", NODES)
def test_the_unit_of_a_node_runs_its_command(unit, name, tmp_path):
    line = unit["Service"]["ExecStart"].replace("%i", name).replace("%%", "%").replace("$$", "$")
    shell, flag, script = shlex.split(line)
    kopi = tmp_path / "kopi"
    kopi.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    kopi.chmod(0o755)
    script = script.replace("/opt/kopitiam/bin/kopi", str(kopi))

    output = subprocess.run([shell, flag, script], capture_output=True, text=True, check=True).stdout

    command, arguments = parse_kopi(output.splitlines())
    assert (command, arguments["name"]) == (NODES[name], name)
    assert str(arguments["config"]) == "/etc/kopitiam/kopitiam.toml"


def test_the_configuration_is_accepted_with_the_secrets_of_the_environment(settings):
    assert settings.nodes.kinds == NODES
    assert settings.bus.url == "amqp://kopitiam:change-me@kopi-3:5672/"
    assert settings.nodes.hosts.keys() == NODES.keys()
    assert list(settings.gateway.tokens) == ["kuala-lumpur"]


def test_only_the_user_of_the_nodes_reads_what_they_write(unit, settings):
    assert (unit["Service"]["StateDirectoryMode"], unit["Service"]["UMask"]) == ("0700", "0077")
    assert settings.umask == "077"


@pytest.mark.parametrize("name", NODES)
def test_monitors_restart_the_unit_of_a_node_and_are_allowed_to(settings, name):
    *reaching, program, verb, unit = revival(settings, name).split()
    assert (reaching, program) == (["ssh", settings.nodes.hosts[name]], "systemctl")
    assert (verb, unit) == ("restart", f"kopi@{name}")
    rules = (FOLDER / "50-kopitiam.rules").read_text(encoding="utf-8")
    allowed = re.search(r"/(\^kopi@.*\$)/\.test", rules)
    assert allowed
    assert re.fullmatch(allowed[1], f"{unit}.service")
    assert not re.fullmatch(allowed[1], "ssh.service")
    assert f'action.lookup("verb") == "{verb}"' in rules


def test_systemd_does_not_restart_nodes_and_gives_them_time_to_stop(unit, settings):
    service = unit["Service"]
    assert (service["Restart"], service["User"]) == ("no", "kopitiam")
    assert int(service["TimeoutStopSec"]) > 10
    assert f"/var/lib/{service['StateDirectory']}" == str(settings.home)
    assert settings.storage.url == f"file://{service['ReadWritePaths'].removeprefix('-')}"


@pytest.fixture
def systemd_analyze():
    """Skips the test if systemd-analyze is missing; fails it where CI is set."""
    try:
        if not has_systemd_analyze() and can_install():
            install("systemd", is_there=has_systemd_analyze)
    except (OSError, subprocess.SubprocessError) as error:
        skip_or_fail(f"no systemd: {type(error).__name__}: {error}")
    if not has_systemd_analyze():
        skip_or_fail("there is no systemd-analyze")
    return "systemd-analyze"


def has_systemd_analyze():
    return shutil.which("systemd-analyze") is not None


def test_systemd_analyze_accepts_the_unit(systemd_analyze):
    command = [systemd_analyze, "verify", "--man=no", FOLDER / "kopi@.service"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
