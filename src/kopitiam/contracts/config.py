"""The settings: `kopitiam.toml`, above it `KOPI_SECTION__KEY` in the environment, above that flags."""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from kopitiam.contracts.errors import ConfigError
from kopitiam.contracts.questions import Questions

DEFAULT_FILE = Path("kopitiam.toml")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SparkSection(_Section):
    master: str = "local[*]"
    conf: dict[str, str] = {}


class QuestionsSection(_Section):
    years: tuple[int, int] = (2024, 2025)
    hours: tuple[str, str] = ("06:00:00", "23:00:00")
    min_amount: str = "75"
    top: int = 3

    def ask(self) -> Questions:
        return Questions(*self.years, *self.hours, self.min_amount, self.top)


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="KOPI_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    spark: SparkSection = SparkSection()
    questions: QuestionsSection = QuestionsSection()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del dotenv_settings, file_secret_settings
        return env_settings, init_settings  # what the file says arrives as init arguments


def load_settings(file: Path | None = None) -> Settings:
    """Without a file named, `kopitiam.toml` in the working folder counts, if there is one."""
    if file is None and DEFAULT_FILE.is_file():
        file = DEFAULT_FILE
    try:
        return Settings(**(_read(file) if file else {}))
    except ValidationError as error:
        flaw = error.errors()[0]
        key = ".".join(str(part) for part in flaw["loc"])
        raise ConfigError(f"{file or 'environment'}: {key}: {flaw['msg']}") from None


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None


