"""What can go wrong, and the exit code that each kind of trouble ends a command with.

KopitiamError
├── UserError            2   the user's input or configuration: one clear line, never a stack trace
│   ├── InputError           a folder, file, column or encoding that cannot be read
│   ├── QuestionError        a definition of a question that cannot be answered exactly, or makes no sense
│   ├── BadRows              rows that do not parse, where --strict makes them fatal
│   ├── ConfigError          a parameter or setting that makes no sense
│   └── RegistryRefused      a registry that is missing, damaged, older than its files, or another's
├── Difference           1   answers that differ from those expected
├── RunFailed            1   the computation itself failed
│   └── PartialsDiffer       partial results at rest are not those that were written or committed
├── RunError             1   what was asked of a run cannot be, as things stand
│   ├── RunNotFound      2   no run has this id: the user's input too
│   ├── RunOver              the run takes no more of this
│   ├── TableSealed          a new chunk for a table that has had its END
│   ├── IllegalTransition    the run cannot go from its state to that one
│   ├── BarrierNotReady      the registry does not have all that the barrier waits for
│   ├── IdempotencyConflict  the same key asked for something else before
│   ├── TooManyRuns          the owner has as many open runs as allowed
│   ├── AlreadyPublished     another attempt has published this run's answers
│   ├── ConflictError        a gateway has something else there already (client/refusals.py)
│   └── IncompleteError      a gateway misses what END told of (client/refusals.py)
├── StaleEpoch           1   a lease was lost: whoever wrote under it must stop
├── ForeignCheckpoint    1   a stream's checkpoint does not follow from what the registry knows
└── ServiceError         3   a service that Kopitiam depends on
    ├── EngineDied           Spark's process: what it was at can be done again by another
    ├── StreamStuck          the stream fails again and again, and gets nowhere
    └── Unavailable          unreachable, full, locked or read-only: worth trying again later
        ├── RegistryUnavailable
        └── BusUnavailable
"""


class KopitiamError(Exception):
    """Base of all errors that Kopitiam raises on purpose; its text is meant for people."""

    exit_code = 1


class UserError(KopitiamError):
    exit_code = 2


class InputError(UserError):
    pass


class QuestionError(UserError):
    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line  # of the file that the definition stands in


class BadRows(UserError):
    pass


class ConfigError(UserError):
    pass


class RegistryRefused(UserError):
    pass


class Difference(KopitiamError):
    pass


class RunFailed(KopitiamError):
    pass


class PartialsDiffer(RunFailed):
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
