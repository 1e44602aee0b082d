"""`bolide cluster`: the brokers there are."""

from bolide.cli.output import Format, Namesrv, Output, look, show


def cluster(namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """All brokers: where they are, what they run, how busy."""
    rows = look(namesrv, lambda admin: admin.brokers())
    table = [
        {
            "cluster": row.cluster,
            "broker": row.name,
            "id": row.broker_id,
            "address": row.address,
            "version": row.version if row.is_reachable else "does not answer",
            "in_per_s": row.put_rate,
            "out_per_s": row.got_rate,
        }
        for row in rows
    ]
    show(table, output, empty="no broker is registered here; `bolide broker -n ...` starts one")
