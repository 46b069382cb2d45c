#!/usr/bin/env python3
"""Writes generated.json: signed messages, computed with Python's hmac and nothing of the crate under test.

Run it in this directory: python3 generate.py
"""

import base64
import hashlib
import hmac
import json
import struct

BODIES = {
    "two-spaces-and-accent": "7b2261223a312c20202262223a22c3a9227d",
    "not-utf8": "7b2261223a22ff227d",
    "empty": "",
    "line-feed-at-end": "7b2261223a317d0a",
    "carriage-return": "7b2261223a312c0d0a2262223a327d",
    "byte-order-mark": "efbbbf7b2261223a317d",
    "emoji": "7b2261223a22f09f9880227d",
    "emoji-escaped": "7b2261223a225c75643833645c7564653030227d",
    "long-number": "7b2261223a22785c753030303079222c226e223a31323334353637383930313233343536373839302c2266223a312e307d",
    "form": "7061796c6f61643d253742253232612532322533413125374426783d612b6225323063",
    "with-ids": b'{"id":"evt_1","event_id":"Ev1","event":{"id":"nested"}}'.hex(),
}

SECONDS = 1_700_000_000
MILLIS = SECONDS * 1000
ID = "msg_2Kq"
URL = "https://hooks.example.com/in?a=1"
WHSEC = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"]
TEXT = ["a secret of some length", "an older secret"]


def mac(key, *parts, digest="sha256", encoding="hex"):
    value = hmac.new(key, b"".join(parts), digest).digest()
    return value.hex() if encoding == "hex" else base64.b64encode(value).decode()


def whsec(text):
    return base64.b64decode(text.removeprefix("whsec_"))


def framed(value):
    return struct.pack(">Q", 2**64 - 1) if value is None else struct.pack(">Q", len(value)) + value


def ts(number=SECONDS):
    return str(number).encode()


def entry(name, scheme, secrets, body, headers, *, origin, event_id=None, timestamp=None, **more):
    return {
        "id": name,
        "scheme": scheme,
        "secrets": secrets,
        "body": body.hex(),
        "headers": headers,
        "id_origin": origin,
        "event_id": event_id,
        "timestamp": timestamp,
        "now_ms": MILLIS,
        **more,
    }


def body_field(body, *path):
    """The id that stands in a body, as text."""
    try:
        value = json.loads(body.decode(), parse_int=str)
        for name in path:
            value = value[name]
    except (ValueError, KeyError, TypeError):
        return None
    return value if isinstance(value, str) else None


def standard(name, body, secrets, prefix="webhook", scheme="standard"):
    signatures = [
        "v1," + mac(whsec(secret), ID.encode(), b".", ts(), b".", body, encoding="base64") for secret in secrets
    ]
    headers = [
        [f"{prefix}-id", ID],
        [f"{prefix}-timestamp", str(SECONDS)],
        [f"{prefix}-signature", " ".join(signatures)],
    ]
    return entry(name, scheme, secrets, body, headers, origin="signed_header", event_id=ID, timestamp=SECONDS)


def envelope(name, body, secrets, event_type, content_type, event_id=ID):
    text = (
        b"countersign.envelope.v1\0"
        + framed(ts())
        + framed(event_id.encode())
        + framed(None if event_type is None else event_type.encode())
        + framed(None if content_type is None else content_type.encode())
        + framed(body)
    )
    headers = [["webhook-id", event_id], ["webhook-timestamp", str(SECONDS)]]
    headers += [] if event_type is None else [["webhook-type", event_type]]
    headers += [] if content_type is None else [["content-type", content_type]]
    signatures = ["v1e," + mac(whsec(secret), text, encoding="base64") for secret in secrets]
    headers += [["webhook-signature", " ".join(signatures)]]
    return entry(
        name,
        "envelope",
        secrets,
        body,
        headers,
        origin="signed_header",
        event_id=event_id,
        timestamp=SECONDS,
        event_type=event_type,
        content_type=content_type,
    )


def presets(label, body):
    key = TEXT[0].encode()
    yield standard(f"standard-{label}", body, WHSEC[:1])
    yield standard(f"svix-{label}", body, WHSEC[:1], prefix="svix", scheme="svix")
    yield envelope(f"envelope-{label}", body, WHSEC[:1], "order.paid", "application/json")
    for scheme, header, prefix, digest in [
        ("github", "x-hub-signature-256", "sha256=", "sha256"),
        ("github-sha1", "x-hub-signature", "sha1=", "sha1"),
    ]:
        headers = [["x-github-delivery", ID], [header, prefix + mac(key, body, digest=digest)]]
        yield entry(f"{scheme}-{label}", scheme, TEXT[:1], body, headers, origin="unsigned", event_id=ID)
    headers = [["x-shopify-webhook-id", ID], ["x-shopify-hmac-sha256", mac(key, body, encoding="base64")]]
    yield entry(f"shopify-{label}", "shopify", TEXT[:1], body, headers, origin="unsigned", event_id=ID)

    found = body_field(body, "id")
    headers = [["stripe-signature", f"t={SECONDS},v1=" + mac(key, ts(), b".", body)]]
    origin = "signed_body" if found else "none"
    yield entry(
        f"stripe-{label}", "stripe", TEXT[:1], body, headers, origin=origin, event_id=found, timestamp=SECONDS
    )
    found = body_field(body, "event_id")
    headers = [
        ["x-slack-request-timestamp", str(SECONDS)],
        ["x-slack-signature", "v0=" + mac(key, b"v0:", ts(), b":", body)],
    ]
    origin = "signed_body" if found else "none"
    yield entry(f"slack-{label}", "slack", TEXT[:1], body, headers, origin=origin, event_id=found, timestamp=SECONDS)


def options(label, body):
    key = TEXT[0].encode()
    head = {"header": "x-sig"}

    def built(name, more, headers, *, secrets=TEXT[:1], origin="none", **rest):
        return entry(f"hmac-{name}-{label}", "hmac", secrets, body, headers, origin=origin, options=head | more, **rest)

    yield built("plain", {}, [["x-sig", mac(key, body)]])
    yield built(
        "prefix-base64",
        {"prefix": "sha256=", "encoding": "base64", "id": "x-id"},
        [["x-id", ID], ["x-sig", "sha256=" + mac(key, body, encoding="base64")]],
        origin="unsigned",
        event_id=ID,
    )
    yield built("sha1", {"algorithm": "sha1"}, [["x-sig", mac(key, body, digest="sha1")]])
    text = [ID.encode(), b".", ts(), b".", body]
    yield built(
        "sha512-id-timestamp",
        {
            "algorithm": "sha512",
            "encoding": "base64",
            "signed": "{id}.{timestamp}.{body}",
            "timestamp": "x-time",
            "id": "x-id",
        },
        [["x-id", ID], ["x-time", str(SECONDS)], ["x-sig", mac(key, *text, digest="sha512", encoding="base64")]],
        origin="signed_header",
        event_id=ID,
        timestamp=SECONDS,
    )
    yield built(
        "millis-behind-body",
        {"signed": "v0:{body}:{timestamp}", "timestamp": "x-time:ms"},
        [["x-time", str(MILLIS)], ["x-sig", mac(key, b"v0:", body, b":", ts(MILLIS))]],
        timestamp=SECONDS,
    )
    yield built(
        "method-and-url",
        {"signed": "{method}{url}{body}"},
        [["x-sig", mac(key, b"PUT", URL.encode(), body)]],
        method="PUT",
        url=URL,
    )
    found = body_field(body, "event", "id")
    yield built(
        "body-id",
        {"id": "body:event.id"},
        [["x-sig", mac(key, body)]],
        origin="signed_body" if found else "none",
        event_id=found,
    )
    found = body_field(body, "n")
    yield built(
        "number-id",
        {"id": "body:n"},
        [["x-sig", mac(key, body)]],
        origin="signed_body" if found else "none",
        event_id=found,
    )
    secret = "00ff10A0" * 8
    yield built("hex-secret", {"secret": "hex"}, [["x-sig", mac(bytes.fromhex(secret), body)]], secrets=[secret])
    yield built("base64-secret", {"secret": "base64"}, [["x-sig", mac(whsec(WHSEC[0]), body)]], secrets=WHSEC[:1])


def rotations():
    body = b'{"id":"evt_1"}'
    yield standard("standard-two-secrets", body, WHSEC)
    yield envelope("envelope-two-secrets", body, WHSEC, None, None)
    values = ["v1=" + mac(secret.encode(), ts(), b".", body) for secret in TEXT]
    yield entry(
        "stripe-two-secrets",
        "stripe",
        TEXT,
        body,
        [["stripe-signature", f"t={SECONDS}," + ",".join(values)]],
        origin="signed_body",
        event_id="evt_1",
        timestamp=SECONDS,
    )
    headers = [["x-hub-signature-256", "sha256=" + mac(TEXT[0].encode(), body)]]
    yield entry("github-two-secrets-no-id", "github", TEXT, body, headers, origin="none")


def envelopes():
    body = b"{}"
    yield envelope("envelope-no-type", body, WHSEC[:1], None, "application/json")
    yield envelope("envelope-empty-type", body, WHSEC[:1], "", "application/json")
    yield envelope("envelope-no-content-type", body, WHSEC[:1], "order.paid", None)
    yield envelope("envelope-bare", body, WHSEC[:1], None, None)
    yield envelope("envelope-id-with-dots", body, WHSEC[:1], "a", "b", event_id="a.b.1700000000")


def main():
    entries = [
        vector
        for label, digits in BODIES.items()
        for group in (presets, options)
        for vector in group(label, bytes.fromhex(digits))
    ]
    entries += [*rotations(), *envelopes()]
    lines = ",\n".join(json.dumps(vector) for vector in entries)
    with open("generated.json", "w", encoding="ascii") as file:
        file.write(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
