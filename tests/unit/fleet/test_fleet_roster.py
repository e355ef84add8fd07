"""The nodes of a settings file that changes while the fleet runs."""

import contextlib
import os
from pathlib import Path

import pytest

from kopitiam.contracts.config import NodesSection, PipelineSection, Settings
from kopitiam.contracts.errors import ConfigError
from kopitiam.fleet.preflight import check_shards_of_open_runs
from kopitiam.registry import open_registry
from kopitiam.runtime.monitor import Roster
from kopitiam.system.settings import load_settings

ONE = 'home = "h"\n[nodes]\ngateways = ["gateway-1"]\nservices = ["rabbitmq"]\n'
TWO = 'home = "h"\n[nodes]\ngateways = ["gateway-1", "gateway-2"]\nservices = ["rabbitmq", "postgresql"]\n'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "fleet.toml"
    file.write_text(ONE)
    return file


def rewrite(config: Path, text: str) -> None:
    """With another time than before, however quick that was."""
    before = config.stat().st_mtime_ns
    config.write_text(text)
    os.utime(config, ns=(before + 1, before + 1))


def test_a_file_that_changes_gives_other_nodes_and_services(config: Path) -> None:
    roster = Roster(config, load_settings(config))
    assert roster.nodes().gateways == ("gateway-1",)
    assert set(roster.probes()) == {"rabbitmq"}
    rewrite(config, TWO)
    assert roster.nodes().gateways == ("gateway-1", "gateway-2")
    assert set(roster.probes()) == {"rabbitmq", "postgresql"}


@pytest.mark.parametrize(
    "text", ["[nodes", '[nodes]\ngateways = ["Gateway 1"]\n', '[nodes]\nservices = ["x"]\n']
)
def test_a_file_that_makes_no_sense_changes_nothing_and_is_told_of_once(
    config: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    roster = Roster(config, load_settings(config))
    rewrite(config, text)
    for _ in range(3):
        assert roster.nodes().gateways == ("gateway-1",)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("the fleet stays as it is: ")
    rewrite(config, TWO)
    assert roster.nodes().gateways == ("gateway-1", "gateway-2")


def test_a_file_that_is_gone_changes_nothing(config: Path) -> None:
    roster = Roster(config, load_settings(config))
    config.unlink()
    assert roster.nodes().gateways == ("gateway-1",)


def test_without_a_file_the_nodes_are_those_of_the_start() -> None:
    assert Roster(None, Settings()).nodes() == NodesSection()


def test_shards_of_runs_under_way_want_a_pipeline_until_they_end(tmp_path: Path) -> None:
    with contextlib.closing(open_registry("sqlite", tmp_path)) as registry:
        registry.open_run({}, "", "anna", idempotency_key=None, lease_seconds=60, shards=3)
        shrunk = Settings(
            home=tmp_path,
            pipeline=PipelineSection(shards=2),
            nodes=NodesSection(pipelines={"pipeline-1": (0, 1)}),
        )
        with pytest.raises(ConfigError, match=r"^nodes.pipelines: .* 3 shards; keep a pipeline for 2 until"):
            check_shards_of_open_runs(shrunk, registry)
        kept = shrunk.model_copy(update={"nodes": NodesSection(pipelines={"a": (0, 1), "b": (2,)})})
        check_shards_of_open_runs(kept, registry)
