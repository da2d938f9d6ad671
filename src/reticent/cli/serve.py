"""`reticent serve`: answer queries over HTTP."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from reticent.cli.errors import UsageError, as_usage_errors
from reticent.cli.opening import existing_folder, open_predictor, schema_of
from reticent.cli.options import Flag, Whole
from reticent.cli.own_parts import Own
from reticent.cli.running_server import ADDRESS

if TYPE_CHECKING:
    from reticent.service.alarm_hook import AlarmHook
    from reticent.service.answering import AnsweringService
    from reticent.service.http.access import Keyring

OPTIONS = {
    "host": "--host", "port": "--port", "certificate": "--tls-cert", "private_key": "--tls-key",
    "password": "$RETICENT_TLS_PASSWORD", "behind_proxy": "--behind-proxy",
}  # fmt: skip  # by the fields of a Binding


def serve(
    name: str,
    *,
    host: str = "127.0.0.1",
    port: Whole = 8341,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    behind_proxy: Flag = False,
    probabilities: Flag = False,
    on_alarm: str | None = None,
    own: Own = None,
) -> int:
    """Answer queries over HTTP until Ctrl-C, SIGTERM or SIGHUP; the dashboard is at /.

    Requests that were accepted are answered first. The exit code is 0 after SIGTERM, as supervisors expect. If the
    service has stopped answering, it is 75 if a restart may help, 65 if the store is damaged, and 70 after an error in
    the program.

    Parameters
    ----------
    name
        The predictor, as named for `reticent fit`.
    host
        The address to listen on; one that other machines can reach requires keys, and TLS or a proxy.
    port
        The port to listen on.
    tls_cert
        A certificate with its chain, in PEM.
    tls_key
        Its private key, in PEM, if it is not in the same file; if it is encrypted, $RETICENT_TLS_PASSWORD decrypts it.
    behind_proxy
        A proxy in front of the server terminates TLS.
    probabilities
        Let answers carry the probability of every class. Only for one private model, which is public (`reticent fit
        --learner private-model`).
    on_alarm
        A command to run, or a URL to post to, when an alarm is raised (`reticent fit --alarm-accuracy`). A command has
        the phase in $RETICENT_ALARM_PHASE and all facts, as JSON, in $RETICENT_ALARM; a URL gets the same JSON. Only
        public facts are sent. That it fails is logged, and changes nothing.
    """
    from reticent.service import traces
    from reticent.service.http.batching import WAITING_NUMBERS, WAITING_ROWS, Batcher
    from reticent.service.http.server import Binding, serve
    from reticent.service.http.service import Service
    from reticent.service.processes import ending_in_good_order

    with traces.by_location(), as_usage_errors(serving=True), ending_in_good_order(code=0), ExitStack() as cleanup:
        folder = existing_folder(name)
        answering = open_predictor(name, own)
        until_served = cleanup.enter_context(ExitStack())
        until_served.callback(answering.close)
        if probabilities and (why := answering.no_probabilities) is not None:
            raise UsageError(f"--probabilities: {why}")
        hook = None if on_alarm is None else _alarm_hook(on_alarm, name, answering)
        keyring = _keyring(folder, answering)
        binding = Binding(
            host=host,
            port=port,
            certificate=tls_cert,
            private_key=tls_key,
            password=None if tls_cert is None else os.environ.get("RETICENT_TLS_PASSWORD"),
            behind_proxy=behind_proxy,
        )
        binding.check_host(OPTIONS)
        check_known(host)  # or another reason would be given to refuse it
        binding.check(keyring, OPTIONS)
        check_free(host, port)
        batcher = Batcher(answering, waiting_rows=max(1, min(WAITING_ROWS, WAITING_NUMBERS // answering.columns)))
        schema, classes = schema_of(folder, answering.home.model), answering.classes if probabilities else None
        service = Service(name, schema, answering, batcher, keyring=keyring, probabilities=classes)
        address = folder / ADDRESS
        address.write_text(binding.address, encoding="utf-8")
        cleanup.callback(address.unlink, missing_ok=True)
        print(f"{name}: {binding.address} (dashboard; /docs says how to ask). Ctrl-C ends it.", flush=True)
        if hook is not None:
            cleanup.enter_context(hook)
        until_served.pop_all()  # from here on the server closes it, after all requests are answered
        serve(service, binding)
    if answering.halt is None:
        return 0
    print(f"reticent: {name} has stopped answering: {answering.halt.words(folder)}", file=sys.stderr)
    return answering.halt.code


def _alarm_hook(on_alarm: str, name: str, answering: AnsweringService) -> AlarmHook:
    from reticent.service.alarm_hook import AlarmHook

    if not answering.status().raises_alarms:
        raise UsageError("--on-alarm: this predictor raises none; reticent fit makes one with --alarm-accuracy")
    return AlarmHook(on_alarm, name, answering.home.folder, answering.status)


def check_known(host: str) -> None:
    """Refuse a name that has no address."""
    import socket

    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the second for a name that no DNS can hold
        raise UsageError(f"--host must be a name or an address of this machine, got {host!r}") from None


def check_free(host: str, port: int) -> None:
    """Refuse an address that is not this machine's, or a port in use, with the option to change."""
    import errno
    import socket

    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(address)
            except OSError as error:
                option = "--host" if error.errno == errno.EADDRNOTAVAIL else "--port"
                why = f"cannot listen at {host}, port {port}: {error.strerror}"
                raise UsageError(f"{why}; choose another {option}") from None


def _keyring(folder: Path, answering: AnsweringService) -> Keyring:
    from reticent.service.home import KEYS
    from reticent.service.http.access import DAY, Keyring
    from reticent.service.keys import KeyTable

    today = 1000 * int(time.time() // DAY * DAY)
    return Keyring(KeyTable(folder / KEYS), used=answering.charged(), taught=answering.taught(today))
