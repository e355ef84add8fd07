"""The error tree, with the exit code of each kind. Errors marked with a module are defined there.

KopitiamError
├── UserError            2   the user's input or configuration: one clear line, never a stack trace
│   ├── InputError           a folder, file, column or encoding that cannot be read
│   ├── QuestionError        a definition of a question that cannot be answered exactly, or is invalid
│   ├── BadRows              rows that do not parse, where --strict makes them fatal
│   ├── ConfigError          an invalid parameter or setting
│   ├── DataSetNotFound      no data set has this name, or it has no such version
│   ├── DataMissing          a data set did not keep a table or column that a question needs
│   └── RegistryRefused      a registry that is missing, damaged, older than its files, or of other files
├── Difference           1   answers that differ from those expected
├── RunFailed            1   the computation itself failed
│   └── AttemptFailed        it may succeed at another attempt
│       ├── JobFailed            a Spark job failed on a cluster, whose machines may be the cause
│       └── PartialsDiffer       stored partials differ from those that were written or committed
├── RunError             1   a request that the state of the run does not allow
│   ├── RunNotFound      2   no run has this id: the user's input too
│   ├── RunOver              the run is over, or accepts no more chunks
│   ├── TableSealed          a new chunk for a table that has had its END
│   ├── IllegalTransition    the run cannot change from its state to that one
│   ├── BarrierNotReady      not all expected chunks and rows are processed
│   ├── IdempotencyConflict  the same key was used before for another request
│   ├── TooManyRuns          the owner has as many open runs as allowed
│   ├── TooManyDataSets      the owner has as many data sets as allowed, or the run names too many files
│   ├── FileConflict         a file of the run was named before with other bytes or columns
│   ├── FilesIncomplete      files that a run sends to a data set have had no END
│   ├── VersionConflict      another run has made a version of the data set meanwhile
│   ├── AlreadyPublished     another attempt has published this run's answers
│   ├── ConflictError        a gateway has other content under this name (client/refusals.py)
│   └── IncompleteError      a gateway misses chunks or rows that END announced (client/refusals.py)
├── StaleEpoch           1   the lease was lost: the process that wrote under it must stop
├── ForeignCheckpoint    1   a stream's checkpoint contradicts the registry
└── ServiceError         3   a service that Kopitiam depends on
    ├── EngineDied           Spark's process died: another one can repeat its work
    ├── StreamStuck          the stream fails again and again without progress
    └── Unavailable          unreachable, full, locked or read-only: a retry may succeed
        ├── RegistryUnavailable
        └── BusUnavailable
"""


class KopitiamError(Exception):
    """Base of all errors that Kopitiam raises on purpose; their texts are meant for people."""

    exit_code = 1


class UserError(KopitiamError):
    exit_code = 2


class InputError(UserError):
    pass


class QuestionError(UserError):
    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line  # of the file with the definition


class BadRows(UserError):
    pass


class ConfigError(UserError):
    pass


class RegistryRefused(UserError):
    pass


class DataSetNotFound(UserError):
    pass


class DataMissing(UserError):
    pass


class Difference(KopitiamError):
    pass


class RunFailed(KopitiamError):
    pass


class AttemptFailed(RunFailed):
    pass


class JobFailed(AttemptFailed):
    pass


class PartialsDiffer(AttemptFailed):
    pass


class RunError(KopitiamError):
    pass


class RunNotFound(RunError):
    exit_code = 2


class RunOver(RunError):
    pass


class TableSealed(RunError):
    pass


class IllegalTransition(RunError):
    pass


class BarrierNotReady(RunError):
    pass


class IdempotencyConflict(RunError):
    pass


class TooManyRuns(RunError):
    pass


class TooManyDataSets(RunError):
    pass


class FileConflict(RunError):
    pass


class FilesIncomplete(RunError):
    pass


class VersionConflict(RunError):
    def __init__(self, message: str, newest: int) -> None:
        super().__init__(message)
        self.newest = newest  # the version to build on


class AlreadyPublished(RunError):
    pass


class StaleEpoch(KopitiamError):
    pass


class ForeignCheckpoint(KopitiamError):
    pass


class ServiceError(KopitiamError):
    exit_code = 3


class EngineDied(ServiceError):
    pass


class StreamStuck(ServiceError):
    pass


class Unavailable(ServiceError):
    pass


class RegistryUnavailable(Unavailable):
    pass


class BusUnavailable(Unavailable):
    pass
