"""Makes random requests worth answering: they name a model that is there and ask for little."""

import os

import schemathesis

FEW = 4

# Every interface has its own name for it.
LIMITS = {
    "/v1/chat/completions": "max_tokens",
    "/v1/completions": "max_tokens",
    "/v1/messages": "max_tokens",
    "/v1/responses": "max_output_tokens",
}


def few(body, name):
    """Asks for few tokens, unless it asks for them in a wrong way."""
    asked = body.get(name, FEW)
    if isinstance(asked, int) and not isinstance(asked, bool):
        body[name] = min(asked, FEW)


@schemathesis.hook
def before_call(context, case, **kwargs):
    body = case.body
    if not isinstance(body, dict):
        return
    if isinstance(body.get("model"), str) or "model" not in body:
        body["model"] = os.environ["PTERON_SMALL"]
    if case.path in LIMITS:
        few(body, LIMITS[case.path])
        if "max_completion_tokens" in body:
            few(body, "max_completion_tokens")
    elif case.path.startswith("/api/") and isinstance(body.get("options", {}), dict):
        few(body.setdefault("options", {}), "num_predict")
