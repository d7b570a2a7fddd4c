# What the generated classes are to a type checker, which does not see how they are put together.

class PteronError(Exception):
    class NotFound(PteronError):
        reason: str
    class NotEnoughMemory(PteronError):
        needed: int
        limit: int
        reason: str
    class Unsupported(PteronError):
        reason: str
    class Damaged(PteronError):
        reason: str
    class Cancelled(PteronError): ...
    class ContextFull(PteronError):
        tokens: int
        context: int
        reason: str
    class Invalid(PteronError):
        reason: str
    class Fetch(PteronError):
        reason: str
    class Storage(PteronError):
        reason: str
    class Run(PteronError):
        reason: str
    class Busy(PteronError):
        what: str
    class Disposed(PteronError):
        what: str
    class Listener(PteronError):
        reason: str
