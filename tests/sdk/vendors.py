"""The vendors' own libraries for Python, behind lines of JSON, and with `serve` as a receiver, as in vendors.mjs."""
import json
import os
import sys
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.parse import parse_qsl

out = sys.stdout
# Libraries may print what they think of a request. Standard output is ours.
sys.stdout = sys.stderr


def moment(timestamp):
    return datetime.fromtimestamp(timestamp, tz=timezone.utc)


class Standardwebhooks:
    from standardwebhooks.webhooks import Webhook

    prefix = "webhook"

    def sign(self, request):
        signature = self.Webhook(request["secret"]).sign(
            msg_id=request["id"], timestamp=moment(request["timestamp"]), data=request["body"]
        )
        return {
            f"{self.prefix}-id": request["id"],
            f"{self.prefix}-timestamp": str(request["timestamp"]),
            f"{self.prefix}-signature": signature,
        }

    def verify(self, request):
        self.Webhook(request["secret"]).verify(request["body"], request["headers"])
        return True


class Svix(Standardwebhooks):
    from svix.webhooks import Webhook

    prefix = "svix"


class Stripe:
    import stripe

    def sign(self, request):
        signature = self.stripe.WebhookSignature.generate_signature_header(
            request["body"], request["secret"], request["timestamp"]
        )
        return {"stripe-signature": signature}

    def verify(self, request):
        signature = request["headers"]["stripe-signature"]
        return self.stripe.WebhookSignature.verify_header(request["body"], signature, request["secret"], 300)


class Slack:
    from slack_sdk.signature import SignatureVerifier

    def sign(self, request):
        signature = self.SignatureVerifier(request["secret"]).generate_signature(
            timestamp=str(request["timestamp"]), body=request["body"]
        )
        return {"x-slack-request-timestamp": str(request["timestamp"]), "x-slack-signature": signature}

    def verify(self, request):
        return self.SignatureVerifier(request["secret"]).is_valid_request(request["body"], request["headers"])


class Twilio:
    from twilio.request_validator import RequestValidator

    def sign(self, request):
        signature = self.RequestValidator(request["secret"]).compute_signature(
            request["url"], dict(parse_qsl(request["body"]))
        )
        return {"x-twilio-signature": signature}

    def verify(self, request):
        return self.RequestValidator(request["secret"]).validate(
            request["url"], dict(parse_qsl(request["body"])), request["headers"]["x-twilio-signature"]
        )


class Workos:
    from workos.webhooks._verification import verify_header

    def verify(self, request):
        type(self).verify_header(
            event_body=request["body"].encode(),
            event_signature=request["headers"]["workos-signature"],
            secret=request["secret"],
        )
        return True


class Hubspot:
    from hubspot.utils.signature import Signature

    def sign(self, request):
        sent = str(request["timestamp"] * 1000)
        signature = self.Signature.get_signature(
            request["secret"], request["body"], "v3", request["url"], request["method"], sent
        )
        return {"x-hubspot-request-timestamp": sent, "x-hubspot-signature-v3": signature}

    def verify(self, request):
        return self.Signature.is_valid(
            signature=request["headers"]["x-hubspot-signature-v3"],
            client_secret=request["secret"],
            request_body=request["body"],
            http_uri=request["url"],
            http_method=request["method"],
            signature_version="v3",
            timestamp=request["headers"]["x-hubspot-request-timestamp"],
        )


class Adyen:
    from Adyen import util

    def sign(self, request):
        signature = self.util.generate_payload_sig(request["body"].encode(), request["secret"])
        return {"hmacsignature": signature if isinstance(signature, str) else signature.decode(), "protocol": "HmacSHA256"}

    def verify(self, request):
        return self.util.is_valid_hmac_payload(
            request["headers"]["hmacsignature"], request["secret"], request["body"].encode()
        )


class Razorpay:
    from razorpay.utility.utility import Utility

    def verify(self, request):
        return self.Utility().verify_webhook_signature(
            request["body"], request["headers"]["x-razorpay-signature"], request["secret"]
        )


class Sendgrid:
    from sendgrid.helpers.eventwebhook import EventWebhook

    def verify(self, request):
        return self.EventWebhook(request["public"]).verify_signature(
            request["body"],
            request["headers"]["x-twilio-email-event-webhook-signature"],
            request["headers"]["x-twilio-email-event-webhook-timestamp"],
        )


class Square:
    from square.utils.webhooks_helper import verify_signature

    def verify(self, request):
        return type(self).verify_signature(
            request_body=request["body"],
            signature_header=request["headers"]["x-square-hmacsha256-signature"],
            signature_key=request["secret"],
            notification_url=request["url"],
        )


class Openai:
    from openai import OpenAI

    def verify(self, request):
        client = self.OpenAI(api_key="key")
        client.webhooks.verify_signature(request["body"], request["headers"], secret=request["secret"])
        return True


class Resend:
    import resend

    def verify(self, request):
        headers = request["headers"]
        self.resend.Webhooks.verify(
            {
                "payload": request["body"],
                "headers": {name: headers[f"svix-{name}"] for name in ("id", "timestamp", "signature")},
                "webhook_secret": request["secret"],
            }
        )
        return True


class Paddle:
    from paddle_billing.Notifications import Secret, Verifier

    def verify(self, request):
        class Arrived:
            body = request["body"].encode()
            content = body
            data = body
            headers = {"Paddle-Signature": request["headers"]["paddle-signature"]}

        return self.Verifier().verify(Arrived(), self.Secret(request["secret"]))


VENDORS = {
    "standardwebhooks": Standardwebhooks,
    "svix": Svix,
    "stripe": Stripe,
    "slack": Slack,
    "twilio": Twilio,
    "workos": Workos,
    "hubspot": Hubspot,
    "adyen": Adyen,
    "razorpay": Razorpay,
    "sendgrid": Sendgrid,
    "square": Square,
    "openai": Openai,
    "resend": Resend,
    "paddle": Paddle,
}


def answered(request):
    vendor = VENDORS[request["sdk"]]()
    try:
        if request["do"] == "sign":
            return {"headers": vendor.sign(request)}
        return {"valid": bool(vendor.verify(request))}
    except Exception as error:  # Each library throws its own.
        text = f"{type(error).__name__}: {error}"
        return {"error": text} if request["do"] == "sign" else {"valid": False, "error": text}


def serve():
    receivers = json.loads(os.environ["RECEIVERS"])
    arrived, lock = [], Lock()

    class Receiver(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.answer(200, json.dumps(arrived).encode())

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            name = self.path[1:]
            headers = {key.lower(): value for key, value in self.headers.items()}
            url = f"http://{headers['host']}{self.path}"
            request = {**receivers[name], "do": "verify", "method": "POST", "url": url, "headers": headers, "body": body}
            with lock:
                verdict = answered(request)
                one = {"name": name, "id": json.loads(body)["id"], "error": None, **verdict}
                again = any(other == {**one, "valid": True} for other in arrived)
                arrived.append(one)
            self.answer((204 if again else 500) if one["valid"] else 401, b"")

        def answer(self, status, body):
            self.send_response(status)
            if status != 204:
                self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    print(server.server_port, file=out, flush=True)
    server.serve_forever()


if sys.argv[1:] == ["serve"]:
    serve()
else:
    for line in sys.stdin:
        print(json.dumps(answered(json.loads(line))), file=out, flush=True)
