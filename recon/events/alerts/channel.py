"""Sends a message to a channel by apprise, within a time limit, and says why where it was not sent."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from recon.base.errors import ConfigError, EvidenceError, ReconError
from recon.base.limits import within
from recon.base.requirements import how_to_install
from recon.base.text import cut, first_line
from recon.events.alerts.text import Message
from recon.project import Project
from recon.project.alerts import Channel

MESSAGE_S = 15.0  # for one message

_saying = threading.local()  # what apprise logged in a thread that sends


class _Heard(logging.Filter):
    """Keeps what apprise logs while a message is sent: it says there, and only there, why one was not.

    It goes no further: apprise logs URLs, too.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        lines = getattr(_saying, "lines", None)
        if lines is None:
            return True
        if record.levelno >= logging.WARNING:
            lines.append(record.getMessage())
        return False


_heard = _Heard()


class Sender:
    """Sends to one channel. One message at a time: where one hangs, no other is begun."""

    def __init__(self, project: Project, channel: Channel, within_s: float = MESSAGE_S) -> None:
        """Reaches nothing; `within_s` is the time that one message has.

        Raises:
            ConfigError: apprise is not installed, or does not know such a URL.
        """
        self._name, self._mask, self._within_s = channel.name, project.mask, within_s
        try:
            import apprise
        except ImportError:
            raise ConfigError(
                f"channel {channel.name} of alerts needs apprise, and it is not there; {how_to_install('alerts')}"
            ) from None
        logging.getLogger("apprise").addFilter(_heard)
        asset = apprise.AppriseAsset(app_id="recon", app_desc="recon", app_url="", image_url_mask="", image_url_logo="")
        # What apprise says of a URL quotes it.
        service = _listening([], lambda: apprise.Apprise.instantiate(channel.url, asset=asset))
        if not isinstance(service, apprise.NotifyBase):
            raise ConfigError(
                f"the url of channel {channel.name} of alerts is none that apprise knows, or a part of it is missing; "
                "https://appriseit.com/services/ says how the URL of each service is written"
            )
        self._service: Any = service
        self._text = apprise.NotifyFormat.TEXT
        self._kinds = {kind.value: kind for kind in apprise.NotifyType}
        self._hanging: threading.Event | None = None

    def send(self, message: Message) -> None:
        """Sends a message.

        Raises:
            EvidenceError: it was not sent, or not in time.
        """
        if self._hanging is not None and not self._hanging.is_set():
            raise EvidenceError(f"channel {self._name} still has not answered to an earlier message")
        done, lines = threading.Event(), list[str]()
        self._hanging = done

        def send() -> bool:
            try:
                return bool(_listening(lines, lambda: self._notify(message)))
            finally:
                done.set()

        try:
            sent = within(self._within_s, send, f"channel {self._name} did not take the message")
        except ReconError:
            raise
        except Exception as error:  # whatever a plugin raises
            reason = self._mask(f"{type(error).__name__}: {first_line(error)}")
            raise EvidenceError(f"channel {self._name} did not take the message: {reason}") from None
        if not sent:
            raise EvidenceError(f"channel {self._name} did not take the message: {self._why(lines)}")

    def _notify(self, message: Message) -> Any:
        return self._service.notify(
            title=self._mask(message.title),
            body=self._mask(message.body),  # the link to the report may be one that is signed
            notify_type=self._kinds[message.kind],
            body_format=self._text,
        )

    def _why(self, lines: list[str]) -> str:
        return cut(self._mask(" ".join(" ".join(lines).split())), 400).rstrip(".") or "apprise does not say why"


def _listening(lines: list[str], call: Callable[[], Any]) -> Any:
    _saying.lines = lines
    try:
        return call()
    finally:
        _saying.lines = None


def trial_message(project: Project) -> Message:
    """What `recon alerts test` sends."""
    body = "This is a test of recon's alerts: nothing is wrong. It was sent by `recon alerts test`."
    return Message(title=f"{project.name}: a test of alerts", body=body, kind="info")
