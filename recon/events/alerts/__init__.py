"""Alerts: what is wrong is told once to each channel, and once more when it is over.

`problems` derives from events what is wrong (pure), `memory` keeps beside the ledger what a channel was told, `text`
words it, `channel` sends it by apprise, `alerts` is the consumer of events that brings them together.
"""

from recon.events.alerts.alerts import ChannelAlerts
from recon.events.alerts.channel import Sender, trial_message

__all__ = ["ChannelAlerts", "Sender", "trial_message"]
