#!/usr/bin/env python3
"""Writes the vector files of rows that nobody publishes vectors for, and further requests for some that have them.

Computed with Python's hmac and nothing of the crate under test. Run it in this directory: python3 generate_verdicts.py
"""

import base64
import hashlib
import hmac
import json
import struct

SOURCE = "computed with Python's hmac"


def mac(key, text, digest="sha256"):
    return hmac.new(key, text, digest).digest()


def b64(value):
    return base64.b64encode(value).decode()


def vector(name, provider, headers, body, secret, *, now=1_700_000_000, tolerance=None, expect="valid", event_id=None,
           signed=None, note="", method="POST", url=None):
    return {
        "id": name, "provider": provider, "source": SOURCE, "method": method,
        "url": url or f"https://hooks.example.com/in/{provider}", "headers": headers, "body_base64": b64(body),
        "secret": secret, "now_unix": now, "tolerance_s": tolerance, "expect": expect, "event_id": event_id,
        "event_id_signed": signed, "note": note,
    }


def write(name, vectors):
    with open(f"{name}.json", "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(vector) for vector in vectors) + "\n]\n")


def jira():
    body, secret = b'{"webhookEvent":"jira:issue_updated","timestamp":1700000000000}', "jira-secret"
    good = "sha256=" + mac(secret.encode(), body).hex()
    headers = {"X-Hub-Signature": good, "X-Atlassian-Webhook-Identifier": "f1c2"}
    return [
        vector("jira-ok", "jira", headers, body, secret, event_id="f1c2", signed=False),
        vector("jira-id-changed", "jira", {**headers, "X-Atlassian-Webhook-Identifier": "other"}, body, secret,
               event_id="other", signed=False, note="the identifier is not signed"),
        vector("jira-sha1", "jira", {"X-Hub-Signature": "sha1=" + mac(secret.encode(), body, "sha1").hex()}, body, secret,
               expect="malformed", note="SHA-1 under the same header"),
        vector("jira-body", "jira", headers, body + b" ", secret, expect="invalid"),
    ]


def metronome():
    body, secret, date = b'{"id":"evt_1","type":"alert"}', "metronome-secret", "Tue, 14 Nov 2023 22:13:20 GMT"
    def headers(date=date, signed=date):
        signature = mac(secret.encode(), signed.encode() + b"\n" + body).hex()
        return {"Date": date, "Metronome-Webhook-Signature": signature}
    common = {"tolerance": 300, "event_id": "evt_1", "signed": True}
    return [
        vector("metronome-ok", "metronome", headers(), body, secret, **common),
        vector("metronome-edge", "metronome", headers(), body, secret, now=1_700_000_300, **common),
        vector("metronome-stale", "metronome", headers(), body, secret, now=1_700_000_301, tolerance=300, expect="stale"),
        vector("metronome-date-changed", "metronome", headers("Tue, 14 Nov 2023 22:13:21 GMT"), body, secret, tolerance=300,
               expect="invalid"),
        vector("metronome-asctime", "metronome", headers("Tue Nov 14 22:13:20 2023", "Tue Nov 14 22:13:20 2023"), body,
               secret, tolerance=300, expect="malformed", note="an older form of the date"),
    ]


def supabase():
    secret, body, id, ts = "v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"user":{}}', "msg_1", "1700000000"
    key = base64.b64decode(secret.removeprefix("v1,whsec_"))
    headers = {"webhook-id": id, "webhook-timestamp": ts,
               "webhook-signature": "v1," + b64(mac(key, f"{id}.{ts}.".encode() + body))}
    common = {"tolerance": 300, "event_id": id, "signed": True}
    return [
        vector("supabase-ok", "supabase", headers, body, secret, **common),
        vector("supabase-secret-without-tag", "supabase", headers, body, secret.removeprefix("v1,"), **common),
        vector("supabase-text-key", "supabase", {**headers, "webhook-signature":
               "v1," + b64(mac(secret.encode(), f"{id}.{ts}.".encode() + body))}, body, secret, tolerance=300,
               expect="invalid", note="the text of the secret as the key"),
    ]


def outpost():
    secret, body = "outpost-secret", b'{"order":1}'
    good, bad = mac(secret.encode(), body).hex(), "00" * 32
    headers = {"X-Outpost-Signature": f"v0={bad},v0={good}", "X-Outpost-Event-Id": "evt_1", "X-Outpost-Topic": "order"}
    return [
        vector("outpost-second", "outpost", headers, body, secret, event_id="evt_1", signed=False,
               note="the second of two signatures matches"),
        vector("outpost-no-tag", "outpost", {"X-Outpost-Signature": good}, body, secret, expect="malformed"),
        vector("outpost-none", "outpost", {**headers, "X-Outpost-Signature": f"v0={bad}"}, body, secret, expect="invalid"),
    ]


def envelope():
    secret, body, id, ts = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"order":1}', "order.1/paid", "1700000000"
    key = base64.b64decode(secret.removeprefix("whsec_"))
    def framed(value):
        return b"\xff" * 8 if value is None else struct.pack(">Q", len(value)) + value
    def sign(type, content_type):
        parts = [ts.encode(), id.encode(), type, content_type, body]
        return "v1e," + b64(mac(key, b"countersign.envelope.v1\0" + b"".join(map(framed, parts))))
    base = {"webhook-id": id, "webhook-timestamp": ts}
    full = {**base, "webhook-type": "order.paid", "content-type": "application/json",
            "webhook-signature": sign(b"order.paid", b"application/json")}
    common = {"tolerance": 300, "event_id": id, "signed": True}
    return [
        vector("envelope-ok", "envelope", full, body, secret, note="an id may hold any character", **common),
        vector("envelope-no-type", "envelope", {**base, "webhook-signature": sign(None, None)}, body, secret, **common),
        vector("envelope-type-changed", "envelope", {**full, "webhook-type": "order.void"}, body, secret, tolerance=300,
               expect="invalid"),
        vector("envelope-type-dropped", "envelope", {k: v for k, v in full.items() if k != "webhook-type"}, body, secret,
               tolerance=300, expect="invalid"),
        vector("envelope-stale", "envelope", full, body, secret, now=1_700_000_301, tolerance=300, expect="stale"),
        vector("envelope-standard-tag", "envelope", {**full, "webhook-signature": full["webhook-signature"].replace(
               "v1e,", "v1,")}, body, secret, tolerance=300, expect="malformed"),
    ]


def twilio():
    """Beside those of the provider: the newer header with the algorithm, and ports."""
    secret, url, body = "shared-key-secret", "https://mycompany.com/myapp.php?foo=1", b"CallSid=CA1&From=%2B15550001"
    def sign(url, digest):
        return b64(mac(secret.encode(), url.encode() + b"CallSidCA1From+15550001", digest))
    settings = {"X-Twilio-Webhooks-Signature-Settings": "key=KS1,algorithm=HMAC_SHA256"}
    sha256 = {"X-Twilio-Signature": sign(url, "sha256"), **settings}
    ported = "https://mycompany.com:8443/myapp.php?foo=1"
    json_body = b'{"a":1}'
    json_url = f"https://mycompany.com/myapp.php?bodySHA256={hashlib.sha256(json_body).hexdigest()}"
    json_headers = {"X-Twilio-Signature": b64(mac(secret.encode(), json_url.encode(), "sha1"))}
    def v(name, headers, body=body, url=url, **more):
        return vector(name, "twilio", headers, body, secret, url=url, **more)
    return [
        v("twilio-more-sha256", sha256),
        v("twilio-more-sha256-body", sha256, body + b"1", expect="invalid"),
        v("twilio-more-algorithm-unknown", {**sha256, "X-Twilio-Webhooks-Signature-Settings": "key=KS1,algorithm=NONE"},
          expect="malformed"),
        v("twilio-more-algorithm-md5", {**sha256, "X-Twilio-Webhooks-Signature-Settings": "algorithm=HMAC_MD5"},
          expect="malformed"),
        v("twilio-more-settings-empty", {**sha256, "X-Twilio-Webhooks-Signature-Settings": ""}, expect="malformed"),
        v("twilio-more-signed-without-port", {"X-Twilio-Signature": sign(url, "sha1")}, url=ported,
          note="configured with a port, signed without"),
        v("twilio-more-signed-with-default-port", {"X-Twilio-Signature": sign(
            "https://mycompany.com:443/myapp.php?foo=1", "sha1")}),
        v("twilio-more-other-port", {"X-Twilio-Signature": sign(ported, "sha1")}, expect="invalid"),
        v("twilio-more-json-body", json_headers, json_body, json_url),
        v("twilio-more-json-other-body", json_headers, json_body + b" ", json_url, expect="invalid",
          note="the URL's digest is that of another body"),
        v("twilio-more-order", {"X-Twilio-Signature": sign(url, "sha1")}, b"From=%2B15550001&CallSid=CA1"),
        v("twilio-more-get", {"X-Twilio-Signature": b64(mac(secret.encode(), url.encode(), "sha1"))}, b"", method="GET"),
    ]


def hubspot():
    """Beside those of the provider: escapes in the URL, and a request that also carries version 3."""
    secret, body, ts = "hubspot-secret", b'{"a":1}', "1700000000000"
    url = "https://h.example.com/in%2Fa?x=%40b%21&y=%3a%20z%7B%25"
    decoded = "https://h.example.com/in/a?x=@b!&y=:%20z%7B%25"
    good = b64(mac(secret.encode(), f"POST{decoded}".encode() + body + ts.encode()))
    raw = b64(mac(secret.encode(), f"POST{url}".encode() + body + ts.encode()))
    def v3(signature):
        return {"X-HubSpot-Signature-v3": signature, "X-HubSpot-Request-Timestamp": ts}
    v1 = {"X-HubSpot-Signature": hashlib.sha256(secret.encode() + body).hexdigest(), "X-HubSpot-Signature-Version": "v1"}
    return [
        ("hubspot-v3", vector("hubspot-v3-more-escapes", "hubspot-v3", v3(good), body, secret, url=url, tolerance=300)),
        ("hubspot-v3", vector("hubspot-v3-more-raw-url", "hubspot-v3", v3(raw), body, secret, url=url, tolerance=300,
                              expect="invalid", note="the URL is decoded before it is signed")),
        ("hubspot-v3", vector("hubspot-v3-more-seconds", "hubspot-v3", {**v3(b64(mac(secret.encode(), f"POST{decoded}".encode()
                              + body + b"1700000000"))), "X-HubSpot-Request-Timestamp": "1700000000"}, body, secret, url=url,
                              tolerance=300, expect="stale", note="seconds where milliseconds are due")),
        ("hubspot-v1", vector("hubspot-v1-more-version", "hubspot-v1", {**v1, "X-HubSpot-Signature-Version": "v2"}, body,
                              secret, expect="malformed")),
    ]


def extend(name, more):
    """Adds requests to a file that holds others; those that it added before are replaced."""
    with open(f"{name}.json") as file:
        kept = [vector for vector in json.load(file) if "-more-" not in vector["id"]]
    write(name, kept + more)


def main():
    for generated in (jira, metronome, supabase, outpost, envelope):
        write(generated.__name__, generated())
    extend("twilio", twilio())
    hub = hubspot()
    for name in {name for name, _ in hub}:
        extend(name, [vector for owner, vector in hub if owner == name])


if __name__ == "__main__":
    main()
