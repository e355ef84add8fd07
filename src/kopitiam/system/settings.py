"""Reads the settings: `kopitiam.toml`, overridden by `KOPI_SECTION__KEY` in the environment.

The settings themselves, with their defaults and checks, are in `contracts.config`.
"""

import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from kopitiam.contracts.config import Settings
from kopitiam.contracts.errors import ConfigError

DEFAULT_FILE = Path("kopitiam.toml")


class _SettingsReader(Settings, BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="KOPI_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del settings_cls, dotenv_settings, file_secret_settings
        return env_settings, init_settings  # the contents of the file are the init arguments


def load_settings(file: Path | None = None) -> Settings:
    """Read the settings from `file`, or from `kopitiam.toml` in the working folder if that exists.

    Raises `ConfigError` that names the file or the environment, and the key.
    """
    if file is None and DEFAULT_FILE.is_file():
        file = DEFAULT_FILE
    try:
        loaded = _SettingsReader(**(_read(file) if file else {}))
    except ValidationError as error:
        flaw = error.errors()[0]
        parts = [str(part) for part in flaw["loc"]]
        is_from_file = file and f"KOPI_{'__'.join(parts)}".upper() not in os.environ
        origin = file if is_from_file else "environment"
        raise ConfigError(f"{origin}: {'.'.join(parts)}: {flaw['msg']}") from None
    except SettingsError as error:
        raise ConfigError(f"environment: {error}; expected JSON") from None
    return Settings.model_construct(loaded.model_fields_set, **dict(loaded))


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
