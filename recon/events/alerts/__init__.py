"""Alerts: each channel is notified of a problem once, and once more when it is over.

`alerts` is the consumer of events. `problems` derives from events what is wrong (pure), and `memory` keeps beside the
ledger what each channel was sent. `text` writes the message, `channel` sends it by apprise.
"""

from recon.events.alerts.alerts import ChannelAlerts
from recon.events.alerts.channel import Sender, trial_message

__all__ = ["ChannelAlerts", "Sender", "trial_message"]
