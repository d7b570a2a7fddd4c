"""What all suites in Python share: where the server is, and one line of JSON for every check.

A line has `name`, `outcome` (passed, failed, or beyond: more than a small model can do) and `detail`. The harness reads
standard output; what people may want to see besides goes to standard error.
"""

import json
import os
import traceback

URL = os.environ["PTERON_URL"].rstrip("/")
KEY = os.environ["PTERON_KEY"]
# A model whose template has a place for tools, and a faster one.
MODEL = os.environ["PTERON_MODEL"]
SMALL = os.environ["PTERON_SMALL"]

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "The city"}},
    "required": ["city"],
    "additionalProperties": False,
}


def tell(name, outcome, detail=""):
    line = {"name": name, "outcome": outcome, "detail": " ".join(str(detail).split())[:400]}
    print(json.dumps(line), flush=True)


def check(name, work):
    """Runs one check; whatever it raises is how it failed."""
    try:
        work()
    except Exception as error:  # noqa: BLE001: a check fails in whatever way the client under it does
        place = traceback.extract_tb(error.__traceback__)[-1]
        tell(name, "failed", f"{type(error).__name__}: {error} ({os.path.basename(place.filename)}:{place.lineno})")
    else:
        tell(name, "passed")


def checks(prefix):
    """Collects functions as checks in the order in which they stand; each is run at once."""

    def decorate(function):
        check(f"{prefix}: {function.__doc__.strip().rstrip('.')}", function)
        return function

    return decorate
