"""Signatures as cosign stores them: a manifest beside the signed one, with the simple-signing payload as its blob.

For those whose admission checks already ask for them; what a machine installs is decided by the bundle's own signature.
"""

from __future__ import annotations

import base64
import io
from hashlib import sha256
from pathlib import Path

import msgspec

from tunewright.errors import BundleError
from tunewright.ports.plugins import missing
from tunewright.shipping.registry import MANIFEST_TYPE, Descriptor, OciManifest, OciRegistry, Reference
from tunewright.stores import files

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
except ImportError as error:
    raise missing("stores", "bundle", error) from error

PAYLOAD_TYPE = "application/vnd.dev.cosign.simplesigning.v1+json"
ANNOTATION = "dev.cosignproject.cosign/signature"
_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
_KIND = "cosign container image signature"
_MAX_BYTES, _MAX_SIGNATURES = 1 << 16, 16


def load_private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Returns the P-256 private key in a PEM file without a password."""
    try:
        key = serialization.load_pem_private_key(files.read_bounded(path, _MAX_BYTES), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise BundleError(
            f"no private key can be read from {path}: {error}; keys of `cosign generate-key-pair` are encrypted "
            "its own way: sign with `cosign sign` instead"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise BundleError(f"{path} is not a P-256 key; make one with `openssl ecparam -name prime256v1 -genkey`")
    return key


def load_public_key(path: Path) -> ec.EllipticCurvePublicKey:
    """Returns the P-256 public key in a PEM file, such as `cosign.pub`."""
    try:
        key = serialization.load_pem_public_key(files.read_bounded(path, _MAX_BYTES))
    except (OSError, ValueError, TypeError) as error:
        raise BundleError(f"no public key can be read from {path}: {error}; give the signer's cosign.pub") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise BundleError(f"{path} is not a P-256 key; give the signer's cosign.pub")
    return key


def signature_tag(digest: str) -> str:
    """Returns the tag at which the signatures of a manifest are found."""
    return digest.replace(":", "-") + ".sig"


def push_signature(registry: OciRegistry, reference: Reference, digest: str, key: ec.EllipticCurvePrivateKey) -> None:
    """Signs the manifest with that digest, and adds the signature to those in the registry."""
    identity = {"docker-reference": f"{reference.registry}/{reference.repository}"}
    critical = {"identity": identity, "image": {"docker-manifest-digest": digest}, "type": _KIND}
    payload = msgspec.json.encode({"critical": critical, "optional": None})
    signature = base64.b64encode(key.sign(payload, ec.ECDSA(hashes.SHA256()))).decode()
    layer = Descriptor(PAYLOAD_TYPE, _digest(payload), len(payload), {ANNOTATION: signature})
    present = registry.get_manifest(signature_tag(digest))
    layers = (*(present[0].layers if present else ()), layer)
    root = {"type": "layers", "diff_ids": [one.digest for one in layers]}
    config = msgspec.json.encode({"architecture": "", "os": "", "config": {}, "rootfs": root})
    for body in (payload, config):
        registry.put_blob(io.BytesIO(body), Descriptor("", _digest(body), len(body)))
    described = Descriptor(_CONFIG_TYPE, _digest(config), len(config))
    registry.put_manifest(OciManifest(2, MANIFEST_TYPE, described, layers), signature_tag(digest))


def verify(registry: OciRegistry, digest: str, public: ec.EllipticCurvePublicKey) -> None:
    """Raises BundleError unless the registry has a signature by that key for the manifest with that digest."""
    found = registry.get_manifest(signature_tag(digest))
    layers = found[0].layers if found else ()
    for layer in layers[:_MAX_SIGNATURES]:
        if layer.media_type != PAYLOAD_TYPE:
            continue
        payload = io.BytesIO()
        registry.get_blob(layer, payload, _MAX_BYTES)
        if _is_signed(payload.getvalue(), layer.annotations.get(ANNOTATION, ""), public, digest):
            return
    raise BundleError(f"nobody with that key signed {digest[:19]}... by cosign; sign it, or give the signer's key")


def _is_signed(payload: bytes, signature: str, public: ec.EllipticCurvePublicKey, digest: str) -> bool:
    try:
        public.verify(base64.b64decode(signature, validate=True), payload, ec.ECDSA(hashes.SHA256()))
        critical = msgspec.json.decode(payload)["critical"]
        return bool(critical["type"] == _KIND and critical["image"]["docker-manifest-digest"] == digest)
    except (InvalidSignature, ValueError, KeyError, TypeError, msgspec.MsgspecError):
        return False


def _digest(body: bytes) -> str:
    return f"sha256:{sha256(body).hexdigest()}"
