"""Plays the conversations of ``clients/vectors/bpmux.json`` with an endpoint: what it does, hears and says."""

from typing import Any

from bpmux.chunks import NAMES
from bpmux.endpoint import Endpoint
from bpmux.errors import BpmuxError
from bpmux.events import Event, Message, Opened, Requested, Responded
from bpmux.limits import Limits


class Player:
    """``names``: what the conversation calls channels and requests; None is the top level."""

    def __init__(self, conversation: dict[str, Any]) -> None:
        self.endpoint = Endpoint(0.0, Limits(**conversation.get("limits", {})))
        self.endpoint.data_to_send()  # its own credit for the top level, before the conversation begins
        self.names: dict[str | None, Any] = {None: self.endpoint.top}

    def play(self, step: dict[str, Any], *, piecewise: bool) -> None:
        """Asserts that the endpoint says and hears what the step says; ``piecewise``: byte by byte."""
        if "do" in step:
            self.do(step)
        else:
            data = bytes.fromhex(step["in"])
            parts = [bytes([byte]) for byte in data] if piecewise else [data]
            heard: list[Event] = []
            rule = None
            for part in parts:
                try:
                    heard += self.endpoint.receive(part, 0.0)
                except BpmuxError as error:
                    heard += self.endpoint.events()
                    rule = error.rule
                    break
            assert [
                self.shown(event, said) for event, said in zip(heard, step["events"], strict=True)
            ] == step["events"]
            assert rule == step.get("rule")
        if "rule" not in step:
            assert self.endpoint.data_to_send().hex() == step["out"]

    def do(self, step: dict[str, Any]) -> None:
        endpoint, name = self.endpoint, step.get("of")
        payload = bytes.fromhex(step.get("payload", ""))
        if step["do"] == "open":
            self.names[name] = getattr(endpoint, f"open_{step['kind']}")(payload)
        elif step["do"] == "request":
            self.names[name] = endpoint.request(payload)
        elif step["do"] == "grant":
            endpoint.grant(self.names[name], int(step["amount"]))
        else:
            getattr(endpoint, step["do"])(self.names[name], payload)

    def shown(self, event: Event, said: dict[str, Any]) -> dict[str, Any]:
        """An event in the words of the vectors; what is new gets the name that the step gives it."""
        shown: dict[str, Any] = {"event": type(event).__name__.lower()}
        if shown["event"] == "finished":
            return shown
        if isinstance(event, Opened | Message):
            subject: Any = event.channel
        elif isinstance(event, Requested | Responded):
            subject = event.request
        else:
            subject = event.entity  # type: ignore[union-attr]
        if isinstance(event, Opened):
            shown["kind"] = NAMES[event.channel.kind]
        if shown["event"] in ("opened", "requested", "refused") and subject not in self.names.values():
            self.names[said["of"]] = subject
        name = next(name for name, each in self.names.items() if each is subject)
        if name is not None:
            shown["of"] = name
        if hasattr(event, "payload"):
            shown["payload"] = event.payload.hex()
        return shown
