"""Options that every command has which asks a cluster: the profile, TLS, and who asks.

They are written once, here, and `--namesrv` brings them wherever it stands. An option stands for a variable of the
environment (`client/profiles.py`) and is set there while the command runs: whatever the command opens or starts, a
handler, a job of Spark's and its workers, finds it. A secret is no option, for the list of processes shows options to
everybody on the machine.
"""

import os

import click

DEFAULT_NAMESRV = "127.0.0.1:9876"
# The variable, how its option is spelled, what it takes, what it is for.
_OPTIONS = (
    ("BOLIDE_PROFILE", "--profile", "NAME", "a profile that `bolide login` made, or its file"),
    ("BOLIDE_TLS", "--tls/--no-tls", "", "speak TLS"),
    ("BOLIDE_TLS_CA", "--tls-ca", "FILE", "speak TLS with servers that it vouches for"),
    ("BOLIDE_TLS_CERT", "--tls-cert", "FILE", "the certificate we show"),
    ("BOLIDE_TLS_KEY", "--tls-key", "FILE", "the private key of it"),
    ("BOLIDE_ACCESS_KEY", "--access-key", "NAME", "the user who asks"),
    ("BOLIDE_SECRET_FILE", "--secret-file", "FILE", "the file with the user's secret, or set BOLIDE_SECRET_KEY"),
)


def name_servers(namesrv: str | None) -> str:
    """What was said, or what the profile says, or where `bolide up` starts one."""
    from bolide.client import profiles

    return profiles.known_settings(namesrv, os.environ).get(profiles.NAMESRV) or DEFAULT_NAMESRV


def connection_options() -> list[click.Option]:
    """One of each; no function has them as parameters."""
    return [_option(*each) for each in _OPTIONS]


def _option(variable: str, spelling: str, metavar: str, about: str) -> click.Option:
    def set_variable(context: click.Context, _: click.Parameter, value: str | bool | None) -> None:
        """Have the variable as long as the command runs."""
        if value is None:
            return
        before = os.environ.get(variable)
        os.environ[variable] = str(value).lower() if isinstance(value, bool) else value

        def put_back() -> None:
            if before is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = before

        context.call_on_close(put_back)

    if not metavar:
        return click.Option([spelling], default=None, expose_value=False, callback=set_variable, help=about)
    return click.Option([spelling], metavar=metavar, expose_value=False, callback=set_variable, help=about)
