#!/usr/bin/env python3
"""Adds to rfc9421.json what the published requests leave out: signature bases put together by hand, signed with Python's
hmac. The first three lines of the file are published requests, and stay."""
import base64
import hashlib
import hmac
import json
import pathlib

FILE = pathlib.Path(__file__).with_name("rfc9421.json")
SECRET = "uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ=="
OTHER = base64.b64encode(bytes(range(32))).decode()
URL = "https://example.com/foo?param=Value&Pet=dog"
NOW = 1618884473
BODY = b'{"hello": "world"}'


def digest(algorithm, body):
    name = {"sha-256": "sha256", "sha-512": "sha512"}[algorithm]
    return f"{algorithm}=:{base64.b64encode(hashlib.new(name, body).digest()).decode()}:"


def vector(name, expect, note, *, lines=None, covered=None, params=None, body=BODY, sent=BODY, secret=SECRET,
           content_digest=None, change=None, secrets=None, now=NOW, cut=None):
    content_digest = content_digest or digest("sha-256", body)
    if lines is None:
        lines = [("@method", "POST"), ("@target-uri", URL), ("content-digest", content_digest)]
    covered = covered or "(" + " ".join(f'"{component}"' for component, _ in lines) + ")"
    signature_params = covered + (params if params is not None else f";created={NOW}")
    base = "".join(f'"{component}": {value}\n' for component, value in lines) + f'"@signature-params": {signature_params}'
    mac = hmac.new(base64.b64decode(secret), base.encode(), hashlib.sha256).digest()[:cut]
    headers = {
        "Content-Type": "application/json",
        "Content-Digest": content_digest,
        "Signature-Input": f"sig1={signature_params}",
        "Signature": f"sig1=:{base64.b64encode(mac).decode()}:",
    }
    entry = {"id": f"rfc9421-{name}", "provider": "rfc9421", "source": "generate_rfc9421.py", "method": "POST", "url": URL,
             "headers": headers, "body_base64": base64.b64encode(sent if sent is not BODY else body).decode(),
             "secret": SECRET, "now_unix": now, "tolerance_s": 300, "expect": expect, "event_id": None,
             "event_id_signed": None, "note": note}
    if secrets:
        entry["secrets"] = secrets
    for key, value in (change or {}).items():
        if key in entry:
            entry[key] = value
        elif value is None:
            del headers[key]
        else:
            headers[key] = value
    return entry


METHOD, TARGET, DIGEST = ("@method", "POST"), ("@target-uri", URL), ("content-digest", digest("sha-256", BODY))
WITHOUT_URL = [METHOD, DIGEST]
VECTORS = [
    vector("plain", "valid", "sha-256"),
    vector("parts", "valid", "path and query in the place of the target",
           lines=[("@path", "/foo"), DIGEST, ("@query", "?param=Value&Pet=dog"), METHOD]),
    vector("request-target", "valid", "the request's target in the place of the URL",
           lines=[METHOD, ("@request-target", "/foo?param=Value&Pet=dog"), DIGEST]),
    vector("more", "valid", "more than what is required",
           lines=[METHOD, TARGET, DIGEST, ("@authority", "example.com"), ("@scheme", "https"),
                  ("content-type", "application/json")]),
    vector("order", "valid", "parameters in another order, and one that is not known",
           params=f';tag="x y";keyid="k\\"1";nonce="n";alg="hmac-sha256";created={NOW};x=?0'),
    vector("two-digests", "valid", "both digests are right",
           content_digest=digest("sha-256", BODY) + ", " + digest("sha-512", BODY)),
    vector("not-utf8", "valid", "a body that is not UTF-8", body=b'{"a":"\xff"}'),
    vector("empty", "valid", "an empty body", body=b""),
    vector("second-secret", "valid", "signed with the second secret", secret=OTHER, secrets=[SECRET, OTHER]),
    vector("edge-past", "valid", "300 seconds old", now=NOW + 300),
    vector("edge-future", "valid", "300 seconds ahead", now=NOW - 300),
    vector("expires-later", "valid", "it has not expired", params=f";created={NOW};expires={NOW + 60}", now=NOW + 60),
    vector("past", "stale", "301 seconds old", now=NOW + 301),
    vector("future", "stale", "301 seconds ahead", now=NOW - 301),
    vector("milliseconds", "stale", "created in milliseconds", params=f";created={NOW}000"),
    vector("expired", "stale", "it has expired", params=f";created={NOW};expires={NOW + 60}", now=NOW + 61),
    vector("body", "invalid", "the body was changed", sent=b'{"hello": "World"}'),
    vector("one-digest-wrong", "invalid", "one of two digests is another body's",
           content_digest=digest("sha-256", b"{}") + ", " + digest("sha-512", BODY)),
    vector("digest-replaced", "invalid", "body and digest were changed", sent=b"{}",
           change={"Content-Digest": digest("sha-256", b"{}")}),
    vector("method", "invalid", "the method was changed", change={"method": "PUT"}),
    vector("query", "invalid", "the query was changed", change={"url": URL + "s"}),
    vector("host", "invalid", "the host was changed", change={"url": URL.replace("example", "Example")}),
    vector("secret", "invalid", "another secret", secret=OTHER),
    vector("created-changed", "invalid", "created was changed",
           change={"Signature-Input": f'sig1=("@method" "@target-uri" "content-digest");created={NOW + 1}'}),
    vector("no-url", "malformed", "the URL is not covered", lines=WITHOUT_URL),
    vector("no-query", "malformed", "the path is covered, the query is not", lines=[METHOD, DIGEST, ("@path", "/foo")]),
    vector("no-digest", "malformed", "there is a digest, and it is not covered", lines=[METHOD, TARGET]),
    vector("no-created", "malformed", "created is missing", params=""),
    vector("created-text", "malformed", "created is a text", params=f';created="{NOW}"'),
    vector("other-alg", "malformed", "alg names another algorithm", params=f';created={NOW};alg="ed25519"'),
    vector("twice", "malformed", "a component is listed twice", lines=[METHOD, TARGET, DIGEST, METHOD]),
    vector("status", "malformed", "a component of responses", lines=[METHOD, TARGET, DIGEST, ("@status", "200")]),
    vector("parameter", "malformed", "a component with a parameter",
           covered='("@method" "@target-uri" "content-digest";req)'),
    vector("absent-header", "malformed", "a covered header is absent", lines=[METHOD, TARGET, DIGEST, ("date", "")]),
    vector("truncated", "malformed", "half of the signature", cut=16),
    vector("no-signature", "malformed", "no Signature", change={"Signature": None}),
    vector("no-input", "malformed", "no Signature-Input", change={"Signature-Input": None}),
    vector("md5", "malformed", "a digest of an algorithm that proves nothing", content_digest="md5=:1B2M2Y8AsgTpgAmY7PhCfg==:"),
    vector("two-inputs", "malformed", "Signature-Input is there twice",
           change={"Signature-Input": [f'sig1=("@method" "@target-uri" "content-digest");created={NOW}'] * 2}),
]

if __name__ == "__main__":
    published = FILE.read_text().splitlines()[1:4]
    lines = [line.rstrip(",") for line in published] + [json.dumps(vector) for vector in VECTORS]
    FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n")
