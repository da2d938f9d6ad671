"""Check a certificate and its private key before a server starts."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path


def check_files(certificate: Path, private_key: Path | None, password: str | None, say: Mapping[str, str]) -> None:
    """Refuse files with which no server can start, by the option to change. Never asks for a pass phrase.

    Parameters
    ----------
    certificate : Path
        The certificate with its chain, in PEM; also the private key if `private_key` is None.
    private_key : Path, default None
        The private key, in PEM.
    password : str, default None
        Decrypts the private key.
    say : mapping of str to str
        What messages call the three: "certificate", "private_key" and "password".
    """
    asked = False

    def passphrase() -> str:
        nonlocal asked
        asked = True
        return password or ""

    own = certificate if private_key is None else private_key
    cert = f"{say['certificate']} {certificate}"
    key = cert if private_key is None else f"{say['private_key']} {private_key}"
    for name, path in ((cert, certificate), (key, own)):
        try:
            path.read_bytes()
        except OSError as error:
            raise ValueError(f"{name} cannot be read: {error.strerror}") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certificate)
    except ssl.SSLError:
        raise ValueError(f"{cert} holds no certificate in PEM") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, private_key, passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(f"{key} does not belong to {cert}") from None
        if asked:
            wrong = "{} does not decrypt it" if password else "give its pass phrase in {}"
            raise ValueError(f"{key} is encrypted: {wrong.format(say['password'])}") from None
        if private_key is None:
            raise ValueError(f"{cert} holds no private key: give {say['private_key']}") from None
        if error.reason in (None, "PEM lib", "PEM_LIB", "NO_START_LINE"):
            raise ValueError(f"{key} holds no private key in PEM") from None
        raise ValueError(f"{cert} with {key} cannot be used: {error.reason}") from None
