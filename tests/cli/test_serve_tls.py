"""`reticent serve` with TLS: wrong files are refused first, and every address that is printed can be asked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import command_line
import pytest
from command_line import Reticent, check_refused

import warm
from reticent.cli.running_server import ADDRESS
from reticent.service import home
from reticent.service.http.server import Binding
from waiting import LIMIT, reserved_port, wait_until

run, clinic = pytest.fixture(command_line.run), pytest.fixture(command_line.clinic)
PASSWORD = "RETICENT_TLS_PASSWORD"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost, one for another name, their key, the key encrypted, another key, an empty file."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *names, "-keyout", "k.pem", "-out", "c.pem")
    names = ["-subj", "/CN=elsewhere", "-addext", "subjectAltName=DNS:elsewhere.example"]
    openssl("req", "-x509", "-key", "k.pem", "-days", "1", *names, "-out", "elsewhere.pem")
    openssl("genrsa", "-out", "other.pem", "2048")
    openssl("rsa", "-aes128", "-passout", "pass:right", "-in", "k.pem", "-out", "encrypted.pem")
    (folder / "empty.pem").touch()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("certificate", "key", "password", "message"),
    [
        ("c.pem", "other.pem", None, "--tls-key other.pem does not belong to --tls-cert c.pem"),
        ("empty.pem", "k.pem", None, "--tls-cert empty.pem holds no certificate in PEM"),
        ("c.pem", "empty.pem", None, "--tls-key empty.pem holds no private key in PEM"),
        ("c.pem", None, None, "--tls-cert c.pem holds no private key: give --tls-key"),
        ("c.pem", "encrypted.pem", None, "--tls-key encrypted.pem is encrypted: give its pass phrase in $RETICENT"),
        ("c.pem", "encrypted.pem", "wrong", "--tls-key encrypted.pem is encrypted: $RETICENT_TLS_PASSWORD does not"),
        ("k.pem", "k.pem", None, "--tls-cert k.pem holds no certificate in PEM"),
    ],
)
def test_files_that_do_not_fit_are_refused_before_an_address_is_printed(
    clinic: Path, files: Path, *, certificate: str, key: str | None, password: str | None, message: str
) -> None:
    """In a process of its own without input: OpenSSL would ask for a pass phrase at the terminal."""
    options = ["--tls-cert", certificate, *([] if key is None else ["--tls-key", key])]
    environment = {name: value for name, value in os.environ.items() if name != PASSWORD}
    if password is not None:
        environment[PASSWORD] = password
    done = warm.run("-m", "reticent.cli", "serve", "clinic", *options, cwd=files, environment=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (home.folder_of("clinic") / ADDRESS).exists()


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:8341"),
        ("::", "http://[::1]:8341"),
        ("0::0", "http://[::1]:8341"),
        ("10.0.0.7", "http://10.0.0.7:8341"),
        ("localhost", "http://localhost:8341"),
    ],
)
def test_an_address_can_be_asked(host: str, url: str) -> None:
    assert Binding(host=host).address == url


@pytest.mark.slow
@pytest.mark.parametrize("certificate", ["c.pem", "elsewhere.pem"])
def test_a_server_for_all_addresses_is_asked_on_the_same_machine(
    run: Reticent, clinic: Path, files: Path, monkeypatch: pytest.MonkeyPatch, certificate: str
) -> None:
    made = run("keys", "add", "clinic", "ward")
    monkeypatch.setenv("RETICENT_KEY", made.out.strip().splitlines()[-1])
    monkeypatch.setenv("SSL_CERT_FILE", str(files / certificate))
    options = ["--host", "0.0.0.0", "--tls-cert", str(files / certificate), "--tls-key", str(files / "k.pem")]
    asking = ("ask", "clinic", "--table", "new.csv", "--out", "a.csv")
    serve = ("-m", "reticent.cli", "serve", "clinic", "--port")
    with (
        reserved_port() as port,
        warm.Process(*serve, str(port), *options, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        url = f"https://127.0.0.1:{port}"
        assert url in process.stdout.readline().decode()
        wait_until(lambda: "does not answer" not in run("status", "clinic").err)
        if certificate == "c.pem":
            assert f"served at {url}" in run("status", "clinic").out
            by_name = f"https://localhost:{port}"
            assert f"served at {by_name}" in run("status", "clinic", "--url", by_name).out
            assert run(*asking).code == 0
            wrong = f"https://127.0.0.2:{port}"  # another address of the same machine
            for_names = f"the certificate of {wrong} is for localhost, 127.0.0.1: ask by one of these names (--url)"
            check_refused(run("status", "clinic", "--url", wrong), for_names)
            check_refused(run("status", "clinic", "--verify", "--url", url), "leave out --url")
        else:
            for command in (asking, asking, ("status", "clinic")):  # no file is left that refuses the second try
                refused = run(*command)
                check_refused(refused, f"the certificate of {url} is for elsewhere.example: ask by one of these names")
                assert ".." not in refused.err
                assert not {"a.csv", "a.csv.asking"} & set(os.listdir())
        assert process.end(LIMIT) == 0


@pytest.mark.slow
def test_a_server_that_is_not_there_leaves_no_files(run: Reticent, clinic: Path) -> None:
    with reserved_port() as port:  # nobody listens there
        for _ in range(2):
            outcome = run("ask", "clinic", "--table", "new.csv", "--out", "a.csv", "--url", f"http://127.0.0.1:{port}")
            check_refused(outcome, "does not answer")
            assert not {"a.csv", "a.csv.asking"} & set(os.listdir())
