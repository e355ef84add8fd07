"""Refusals and the texts of errors that clients see. The handlers that send them are in `app`.

No web framework is imported here: the examiner processes use this module too.
"""

import errno
import re
from typing import Any

from kopitiam.contracts.api import Problem

RETRY_SECONDS = 1
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_ENDS = r"\s'\"`<>|,;()\[\]{}"
_LOCATIONS = re.compile(
    rf"""
      (?P<quote>['"`]) (?P<quoted> (?:[a-z][a-z0-9+.-]*:)? / (?!api/) [^'"`\n]* ) (?P=quote)
    | (?P<address> \b (?:file|jar|hdfs|viewfs|webhdfs|s3[an]?|gs|wasbs?|abfss?) : /{{1,3}} [^{_ENDS}]+ )
    | (?P<path> (?<![\w.:/%~-]) / (?!api/) [^{_ENDS}/:]+ (?: / [^{_ENDS}:]* )+ )
    """,
    re.VERBOSE,
)


class Refusal(Exception):
    """An error response: HTTP status, error code for programs, message for people, further JSON fields."""

    def __init__(self, status: int, error: str, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": error, "message": message, **fields}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of a call, as FastAPI needs them for the OpenAPI document."""
    return {status: {"model": Problem} for status in statuses}


def storage_error_text(error: OSError) -> str:
    """Return the text for a client about an error of the file system, with advice if the disk is full."""
    is_full = error.errno in _DISK_FULL
    advice = "; free disk space for the gateway's storage, and it continues by itself" if is_full else ""
    return f"storage: {error.strerror or 'failed'}{advice}"


def without_paths(text: str) -> str:
    """Replace every absolute path and file address by its last part: `…/chunk-00007.parquet`.

    Spark, Arrow and the system name files in full. Logs and the registry keep that; clients do not see it.
    """
    return _LOCATIONS.sub(_last_part, text)


def _last_part(location: re.Match[str]) -> str:
    quote = location["quote"] or ""
    whole: str = location["quoted"] or location["address"] or location["path"]
    return f"{quote}…/{whole.rstrip('/').rpartition('/')[2]}{quote}"
