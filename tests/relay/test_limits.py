"""The limits of a relay that nobody configured are those of the settings that nobody changed."""

from bccnd.process.settings import Settings
from bccnd.relay.limits import Limits
from bccnd.reload import relay_options


def test_the_defaults_are_those_of_the_settings():
    assert relay_options(Settings(host="here", socket="/run/bus.sock"), [])["limits"] == Limits()
