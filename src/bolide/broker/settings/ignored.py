"""RocketMQ's broker keys that steer nothing here: accepted, shown with its defaults, and named in one warning at start.

They are in `ignored.properties`, in the form of a broker.conf.
"""

from importlib.resources import files

from bolide.remoting import config as remoting
from bolide.settings import read_properties

_TEXT = files(__package__).joinpath("ignored.properties").read_text("utf-8")
WITHOUT_EFFECT: dict[str, str] = remoting.WITHOUT_EFFECT | read_properties(_TEXT)
