"""LangChain's own tests of chat models, with `langchain-openai` in front of the server. Tests that ask more of a model than
that it answers in the right form are named in BEYOND: where they fail, the model is not clever enough, and it is told so."""

import sys

import pytest
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

from checks import KEY, MODEL, URL, tell

# What a model of half a billion weights cannot be held to, and why.
BEYOND = {
    "test_agent_loop": "the model has to call a tool of its own accord, and then to answer by what it gave",
    "test_unicode_tool_call_integration": "the model has to repeat names in other scripts letter by letter",
    "test_structured_output_optional_param": "the model has to leave a field out by its own judgement",
    "test_json_mode": "nothing but the prompt says which fields the object shall have",
    "test_tool_calling": "the model has to find the right argument",
    "test_tool_calling_async": "the model has to find the right argument",
    "test_bind_runnables_as_tools": "the model has to find the right argument",
}


class TestServer(ChatModelIntegrationTests):
    @property
    def chat_model_class(self):
        return ChatOpenAI

    @property
    def chat_model_params(self):
        return {
            "model": MODEL,
            "base_url": f"{URL}/v1",
            "api_key": KEY,
            "temperature": 0,
            "seed": 1,
            # The likeliest token over and over is how so small a model gets caught in one sentence.
            "frequency_penalty": 1.0,
            "max_tokens": 160,
            "stream_usage": True,
            "max_retries": 0,
            "timeout": 300,
        }

    @property
    def supports_json_mode(self):
        return True

    @property
    def supports_image_inputs(self):
        return False


class Told:
    """Tells of every test once it is over."""

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.split("::")[-1]
        if report.when != "call" and report.passed:
            return
        test = name.split("[")[0]
        if report.passed:
            tell(f"langchain: {name}", "passed")
        elif report.skipped:
            # What we do not claim to support, such as pictures; the suite says so itself.
            tell(f"langchain: {name}", "skipped", report.longrepr[-1] if isinstance(report.longrepr, tuple) else "")
        else:
            crash = getattr(report.longrepr, "reprcrash", None)
            how = crash.message.splitlines()[0] if crash else str(report.longrepr)[-200:]
            # Only what the test itself finds wanting, or an answer that does not end, can be the model's fault.
            fault = how.startswith(("AssertionError", "assert ")) or "length limit was reached" in how
            if test in BEYOND and fault:
                tell(f"langchain: {name}", "beyond", f"{BEYOND[test]} ({how})")
            else:
                tell(f"langchain: {name}", "failed", how)


if __name__ == "__main__":
    # pytest's own report is for people; the harness reads standard output.
    out, sys.stdout = sys.stdout, sys.stderr

    class Lines(Told):
        def pytest_runtest_logreport(self, report):
            kept, sys.stdout = sys.stdout, out
            try:
                super().pytest_runtest_logreport(report)
            finally:
                sys.stdout = kept

    arguments = [__file__, "-q", "-p", "no:cacheprovider", "-p", "no:warnings", "--benchmark-disable"]
    # The package keeps its connections from test to test, and they belong to one loop.
    arguments += [f"--override-ini=asyncio_default_{kind}_loop_scope=session" for kind in ("fixture", "test")]
    arguments += ["--override-ini=asyncio_mode=auto"]
    pytest.main([*arguments, *sys.argv[1:]], plugins=[Lines()])
