"""Lists of signers: whom a machine trusts, how many of them must sign, and how one list replaces another.

On each line a public key in base64 and a name; `#` starts a comment. A line may also begin with a word:

    version 4                  a list is replaced only by one with a higher version
    expires 2027-06-30         from then on nothing is accepted until the list is replaced
    threshold 2                how many of the signers must sign a bundle, or the next list; 1 if it is missing
    minimum prod 12            the lowest version of a channel that is accepted
    revoked KEY NAME           a key that is no longer trusted
    signature TEXT             who signed all lines above the first signature: `tunewright bundle sign`
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tunewright.errors import BundleError
from tunewright.stores import files
from tunewright.stores.bundle import signing
from tunewright.stores.bundle.expiry import is_past, parse_time

MAX_BYTES = 1 << 20
"""Largest file of a list."""

_SIGNATURE = "signature"


class SignerList(msgspec.Struct, frozen=True):
    """The trusted signers by public key, and the rules of the list; `signatures` cover `text`."""

    names: dict[bytes, str]
    threshold: int = 1
    version: int = 0
    expires: str = ""
    revoked: dict[bytes, str] = {}
    minimum: dict[str, int] = {}
    text: bytes = b""
    signatures: tuple[str, ...] = ()

    @classmethod
    def of(cls, signers: SignerList | Iterable[str] | Mapping[bytes, str]) -> SignerList:
        """Returns a list from public keys as texts, or from names by public key."""
        if isinstance(signers, SignerList):
            return signers
        if isinstance(signers, Mapping):
            texts = {signing.encode_public_key(public): name for public, name in signers.items()}
        else:
            texts = {text: text[:12] for text in signers}
        return cls({signing.parse_public_key(text, "a signer"): name for text, name in texts.items()})

    def check_current(self, now: float) -> None:
        """Raises BundleError if the list has expired."""
        if is_past(self.expires, now):
            raise BundleError(
                f"the list of signers expired at {self.expires}; get a newer one and install it with "
                "`tunewright bundle rotate`"
            )

    def check_signed(self, publics: Iterable[bytes], what: str) -> tuple[bytes, ...]:
        """Returns those of `publics` who are trusted; raises BundleError if they are too few."""
        given = list(dict.fromkeys(publics))
        trusted = tuple(public for public in given if public in self.names and public not in self.revoked)
        if len(trusted) >= max(1, self.threshold):
            return trusted
        for public in given:
            if public in self.revoked:
                raise BundleError(
                    f"{what} is signed by {self.revoked[public]}, whose key was revoked; get one that is signed anew"
                )
        if not given:
            raise BundleError(f"{what} is not signed; sign it with `tunewright bundle sign`")
        if not trusted:
            raise BundleError(
                f"{what} is signed by {signing.encode_public_key(given[0])}, who is not on your list of signers; "
                "add the key if you trust it"
            )
        raise BundleError(
            f"{what} has {len(trusted)} of the {self.threshold} signatures that your list of signers asks for; "
            "have another signer run `tunewright bundle sign`"
        )

    def require_single(self, path: object) -> dict[bytes, str]:
        """Returns the signers where one signature is all there can be; raises BundleError if more are needed."""
        if self.threshold > 1:
            raise BundleError(
                f"{path} asks for {self.threshold} signatures, but single entries have one; "
                "use a list without `threshold`"
            )
        return {public: name for public, name in self.names.items() if public not in self.revoked}


def read_signers(path: Path) -> SignerList:
    """Returns the list in a file; raises BundleError if a line is wrong."""
    try:
        raw = files.read_bounded(path, MAX_BYTES)
        text = raw.decode()
    except (OSError, ValueError) as error:
        raise BundleError(f"the list of signers cannot be read: {error}") from error
    return parse_signers(text, str(path))


def parse_signers(text: str, where: str) -> SignerList:
    """Returns the list in `text`; `where` is named in errors."""
    names: dict[bytes, str] = {}
    rules: dict[str, str] = {}
    revoked: dict[bytes, str] = {}
    minimum: dict[str, int] = {}
    signatures: list[str] = []
    start, signed = 0, text
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        start += len(line)
        word, _, rest = line.partition("#")[0].strip().partition(" ")
        place = f"{where}, line {number}"
        if signatures and word not in ("", _SIGNATURE):
            raise BundleError(f"{place}: nothing but signatures may follow a signature; sign the whole list again")
        if word == _SIGNATURE:
            signed = signed if signatures else text[: start - len(line)]
            signatures.append(rest.strip())
        elif word in ("version", "expires", "threshold"):
            rules[word] = rest.strip()
        elif word == "minimum":
            channel, _, version = rest.strip().rpartition(" ")
            minimum[channel.strip()] = _number(version, place)
        elif word == "revoked":
            key, _, name = rest.strip().partition(" ")
            revoked[signing.parse_public_key(key, place)] = name.strip() or key[:12]
        elif word:
            names[signing.parse_public_key(word, place)] = rest.strip() or word[:12]
    if rules.get("expires"):
        parse_time(rules["expires"], f"{where}: `expires`")
    listed = SignerList(
        names,
        _number(rules.get("threshold", "1"), where),
        _number(rules.get("version", "0"), where),
        rules.get("expires", ""),
        revoked,
        minimum,
        signed.encode(),
        tuple(signatures),
    )
    if names and not 1 <= listed.threshold <= len(set(names) - set(revoked)):
        raise BundleError(
            f"{where}: {listed.threshold} signatures cannot come from {len(names)} signers; "
            "list more signers, or lower `threshold`"
        )
    return listed


def _number(text: str, where: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 15:
        raise BundleError(f"{where}: {text[:20]!r} is not a whole number; write one, such as 2")
    return int(text)


def sign_file(path: Path, key: Any) -> None:
    """Adds a signature to the list of signers at `path`."""
    listed = read_signers(path)
    if not listed.version:
        raise BundleError(f"{path} has no `version`; add a line such as `version 1`, so that it can be replaced later")
    body = listed.text if listed.text.endswith(b"\n") else listed.text + b"\n"
    own = signing.public_bytes(key)
    others = [text for text in listed.signatures if signing.verify_list_signer(text, listed.text) != own]
    lines = "".join(f"{_SIGNATURE} {text}\n" for text in [*others, signing.sign_list(body, key)])
    files.write_atomic(path, body, lines.encode(), durable=True)


def rotate(current_path: Path, new_path: Path, clock: Callable[[], float] = time.time) -> SignerList:
    """Replaces the list at `current_path` by that at `new_path`, if signers of both lists signed the new one.

    Signers of the old list say that the new one is theirs; those of the new list show that they hold their keys.
    """
    current, new = read_signers(current_path), read_signers(new_path)
    if new.version <= current.version:
        raise BundleError(
            f"{new_path} has version {new.version}, and {current_path} has {current.version} already; "
            "get a list with a higher version"
        )
    new.check_current(clock())
    publics = [signing.verify_list_signer(text, new.text) for text in new.signatures]
    current.check_signed(publics, f"{new_path}, by your present list,")
    new.check_signed(publics, f"{new_path}, by its own rules,")
    signatures = "".join(f"{_SIGNATURE} {text}\n" for text in new.signatures)
    files.write_atomic(current_path, new.text, signatures.encode(), durable=True)
    return new
