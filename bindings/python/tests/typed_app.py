"""What a type checker makes of an app: `mypy --strict tests/typed_app.py` with the package installed."""

import asyncio

import pteron


def needs(source: str) -> int:
    try:
        return pteron.requirements(source).total
    except pteron.PteronError.NotEnoughMemory as error:
        return error.needed
    except pteron.PteronError.NotFound as error:
        raise SystemExit(error.reason) from error


async def talk(source: str) -> str:
    model = await pteron.Model.open_async(source)
    with model, model.chat("Be brief.", max_tokens=8) as chat:
        stream = chat.stream("Why?")
        text = "".join([piece async for piece in stream])
        answer = stream.answer
        assert answer is None or answer.finish_reason is not pteron.FinishReason.CANCELLED
        rate: float | None = answer.stats.decode_rate if answer else None
        roles: list[str] = [message.role for message in chat.history]
        return f"{text} {rate} {roles}"


def transcribe(source: str, sound: str) -> list[str]:
    with pteron.Transcriber.open(source) as transcriber:
        return [segment.text for segment in transcriber.transcribe(sound).segments]


if __name__ == "__main__":
    print(needs(""), asyncio.run(talk("")))
