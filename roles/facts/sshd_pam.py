"""sshd's PAM configuration as it is on a node."""

from __future__ import annotations

from pyinfra.api.facts import FactBase


class SshdPam(FactBase[str]):
    """The text of /etc/pam.d/sshd."""

    @staticmethod
    def default() -> str:
        return ""

    def command(self) -> str:
        return "cat /etc/pam.d/sshd"

    def process(self, output: list[str]) -> str:
        return "\n".join(output) + "\n"
