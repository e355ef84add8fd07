"""Error texts on their way to a client, without the paths and addresses of the service's own files.

Spark, Arrow and the system name files in full. Logs and the registry keep that; a client sees the last part.
"""

import re

_ENDS = r"\s'\"`<>|,;()\[\]{}"
_LOCATIONS = re.compile(
    rf"""
      (?P<quote>['"`]) (?P<quoted> (?:[a-z][a-z0-9+.-]*:)? / (?!api/) [^'"`\n]* ) (?P=quote)
    | (?P<address> \b (?:file|jar|hdfs|viewfs|webhdfs|s3[an]?|gs|wasbs?|abfss?) : /{{1,3}} [^{_ENDS}]+ )
    | (?P<path> (?<![\w.:/%~-]) / (?!api/) [^{_ENDS}/:]+ (?: / [^{_ENDS}:]* )+ )
    """,
    re.VERBOSE,
)


def without_paths(text: str) -> str:
    """Replace every absolute path and file address by its last part: `…/chunk-00007.parquet`."""
    return _LOCATIONS.sub(_last_part, text)


def _last_part(found: re.Match[str]) -> str:
    quote = found["quote"] or ""
    whole: str = found["quoted"] or found["address"] or found["path"]
    return f"{quote}…/{whole.rstrip('/').rpartition('/')[2]}{quote}"
