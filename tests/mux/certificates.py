"""Certificates of an authority that a test makes. For whatever speaks TLS: doors, their clients, uplinks."""

import ssl
import subprocess
from pathlib import Path

NEW_KEY = "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"


class Certificates:
    """``ca``: of the authority. Each name has ``<name>.pem`` and ``<name>.key``."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.ca = folder / "ca.pem"
        authority = "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", "-days", "2"
        self._openssl("req", "-x509", *NEW_KEY, *authority)
        for name in names:
            (folder / f"{name}.ext").write_text(f"subjectAltName=DNS:{name},IP:127.0.0.1\n")
            asked = "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name} of CN"
            self._openssl("req", *NEW_KEY, *asked)
            files = "-in", f"{name}.csr", "-out", f"{name}.pem", "-extfile", f"{name}.ext"
            signed = "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"
            self._openssl("x509", "-req", *files, *signed)

    def sign(self, name: str, subject: str, *extensions: bytes | str) -> None:
        """One more, which may say anything of itself."""
        signed = "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2", "-utf8", "-subj", subject
        added = [word for each in extensions for word in ("-addext", each)]
        files = "-keyout", f"{name}.key", "-out", f"{name}.pem"
        self._openssl(
            "req", "-x509", *NEW_KEY, *signed, *files, "-addext", "basicConstraints=CA:FALSE", *added
        )

    def expire(self, name: str, expired: str) -> None:
        """One more, with the key of ``name``, whose time was over yesterday."""
        signed = "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "-1"
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{expired}.pem", *signed)
        (self.folder / f"{expired}.key").symlink_to(f"{name}.key")

    def _openssl(self, *words: bytes | str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

    def files(self, name: str) -> tuple[Path, Path]:
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def client(self, name: str = "") -> ssl.SSLContext:
        """What a client with this certificate, or none, connects with."""
        context = ssl.create_default_context(cafile=self.ca)
        if name:
            context.load_cert_chain(*self.files(name))
        return context
