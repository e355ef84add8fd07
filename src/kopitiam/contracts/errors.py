"""What can go wrong, and the exit code that each kind of trouble ends a command with.

KopitiamError
├── UserError            2   the user's input or configuration: one clear line, never a stack trace
│   ├── InputError           a folder, file, column or encoding that cannot be read
│   ├── BadRows              rows that do not parse, where --strict makes them fatal
│   └── ConfigError          a parameter or setting that makes no sense
├── Difference           1   answers that differ from those expected
└── RunFailed            1   the computation itself failed
"""


class KopitiamError(Exception):
    """Base of all errors that Kopitiam raises on purpose; its text is meant for people."""

    exit_code = 1


class UserError(KopitiamError):
    exit_code = 2


class InputError(UserError):
    pass


class BadRows(UserError):
    pass


class ConfigError(UserError):
    pass


class Difference(KopitiamError):
    pass


class RunFailed(KopitiamError):
    pass
