"""What a peer can do wrong."""


class BpmuxError(Exception):
    """A chunk after which the connection is dropped. ``rule``: tag, cut, id, state, credit, partial or limit."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
