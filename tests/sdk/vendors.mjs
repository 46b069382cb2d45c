// The vendors' own libraries for Node, behind lines of JSON: one request a line on stdin, one answer a line on stdout.
//
//   {"sdk": "stripe", "do": "sign",   "secret", "id", "timestamp", "method", "url", "body"}            → {"headers": {…}}
//   {"sdk": "stripe", "do": "verify", "secret", "public", "method", "url", "headers": {…}, "body"}     → {"valid": true}
//
// What a library throws is an answer too: {"valid": false} where it verifies, {"error": "…"} where it signs.
//
// With `serve` it is a receiver instead: POST /NAME is verified by the library and with the secret that RECEIVERS, an object in
// the environment, has under that name, as {"sdk", "secret"}. It answers 401 to what does not verify; to each message that does,
// 500 the first time and then 204. GET /arrived is all that came: [{"name", "id", "valid", "error"}]. It writes its port.
//
// usage: node vendors.mjs FOLDER [serve]     FOLDER has the node_modules
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { createServer } from "node:http";
import { File } from "node:buffer";
import { createHash, createPrivateKey, createPublicKey, webcrypto } from "node:crypto";

const folder = resolve(process.argv[2]);
const require = createRequire(join(folder, "package.json"));
// Some libraries expect these to be there, which they are since Node 20.
globalThis.crypto ??= webcrypto;
globalThis.File ??= File;
// Libraries may write to stdout what they think of a request. It is ours.
const write = process.stdout.write.bind(process.stdout);
process.stdout.write = (...args) => process.stderr.write(...args);

const form = (body) => Object.fromEntries(new URLSearchParams(body));
const seconds = (at) => new Date(at * 1000);
const truthy = (value) => Boolean(value);

const standard = (Webhook, prefix) => ({
  sign: ({ secret, id, timestamp, body }) => ({
    [`${prefix}-id`]: id,
    [`${prefix}-timestamp`]: String(timestamp),
    [`${prefix}-signature`]: new Webhook(secret).sign(id, seconds(timestamp), body),
  }),
  verify: ({ secret, headers, body }) => truthy(new Webhook(secret).verify(body, headers)),
});

const vendors = {
  standardwebhooks: () => standard(require("standardwebhooks").Webhook, "webhook"),
  svix: () => standard(require("svix").Webhook, "svix"),
  stripe: () => {
    const { webhooks } = new (require("stripe"))("sk_test_x");
    return {
      sign: ({ secret, timestamp, body }) => ({
        "stripe-signature": webhooks.generateTestHeaderString({ payload: body, secret, timestamp }),
      }),
      verify: ({ secret, headers, body }) => truthy(webhooks.constructEvent(body, headers["stripe-signature"], secret)),
    };
  },
  octokit: async () => {
    // It can be imported only, and not from outside its folder.
    const { sign, verify } = await import(pathToFileURL(join(folder, "node_modules/@octokit/webhooks-methods/dist-node/index.js")));
    return {
      sign: async ({ secret, body }) => ({ "x-hub-signature-256": await sign(secret, body) }),
      verify: ({ secret, headers, body }) => verify(secret, body, headers["x-hub-signature-256"]),
    };
  },
  slack: () => {
    const { isValidSlackRequest } = require("@slack/bolt");
    return {
      verify: ({ secret, headers, body }) =>
        isValidSlackRequest({
          signingSecret: secret,
          body,
          headers: {
            "x-slack-signature": headers["x-slack-signature"],
            "x-slack-request-timestamp": Number(headers["x-slack-request-timestamp"]),
          },
        }),
    };
  },
  twilio: () => {
    const twilio = require("twilio");
    return {
      sign: ({ secret, url, body }) => ({
        "x-twilio-signature": require(join(folder, "node_modules/twilio/lib/webhooks/webhooks.js"))
          .getExpectedTwilioSignature(secret, url, form(body)),
      }),
      verify: ({ secret, url, headers, body }) =>
        twilio.validateRequest(secret, headers["x-twilio-signature"], url, form(body)),
    };
  },
  shopify: async () => {
    require("@shopify/shopify-api/adapters/node");
    const { shopifyApi, LogSeverity } = require("@shopify/shopify-api");
    return {
      verify: async ({ secret, method, url, headers, body }) => {
        const { webhooks } = shopifyApi({
          apiKey: "key", apiSecretKey: secret, hostName: "hooks.example.com", isEmbeddedApp: false,
          apiVersion: "2026-07", scopes: ["read_products"], logger: { log: () => {}, level: LogSeverity.Error },
        });
        const rawRequest = {
          method, url: new URL(url).pathname,
          headers: {
            "x-shopify-topic": "orders/paid", "x-shopify-shop-domain": "a.myshopify.com",
            "x-shopify-api-version": "2026-07", "x-shopify-webhook-id": "1", ...headers,
          },
        };
        return (await webhooks.validate({ rawBody: body, rawRequest, rawResponse: {} })).valid;
      },
    };
  },
  square: () => ({
    verify: ({ secret, url, headers, body }) =>
      require("square").WebhooksHelper.verifySignature({
        requestBody: body, signatureHeader: headers["x-square-hmacsha256-signature"], signatureKey: secret, notificationUrl: url,
      }),
  }),
  paddle: () => {
    const { Paddle } = require("@paddle/paddle-node-sdk");
    const { webhooks } = new Paddle("key");
    return { verify: ({ secret, headers, body }) => webhooks.isSignatureValid(body, secret, headers["paddle-signature"]) };
  },
  razorpay: () => ({
    verify: ({ secret, headers, body }) =>
      require("razorpay").validateWebhookSignature(body, headers["x-razorpay-signature"], secret),
  }),
  line: () => ({
    verify: ({ secret, headers, body }) => require("@line/bot-sdk").validateSignature(body, secret, headers["x-line-signature"]),
  }),
  linear: async () => {
    const { LinearWebhookClient } = await import(pathToFileURL(require.resolve("@linear/sdk/webhooks")));
    return {
      verify: ({ secret, headers, body }) =>
        new LinearWebhookClient(secret).verify(Buffer.from(body), headers["linear-signature"], JSON.parse(body).webhookTimestamp),
    };
  },
  hubspot: () => {
    const { Signature } = require("@hubspot/api-client");
    return {
      sign: ({ secret, timestamp, method, url, body }) => ({
        "x-hubspot-request-timestamp": String(timestamp * 1000),
        "x-hubspot-signature-v3": Signature.getSignature(method, "v3", {
          clientSecret: secret, requestBody: body, url, timestamp: timestamp * 1000,
        }),
      }),
      verify: ({ secret, method, url, headers, body }) =>
        Signature.isValid({
          signatureVersion: "v3", method, url, clientSecret: secret, requestBody: body,
          signature: headers["x-hubspot-signature-v3"], timestamp: Number(headers["x-hubspot-request-timestamp"]),
        }),
    };
  },
  adyen: () => {
    const hmac = new (require("@adyen/api-library").hmacValidator)();
    return {
      sign: ({ secret, body }) => ({ hmacsignature: hmac.calculateHmac(body, secret), protocol: "HmacSHA256" }),
      verify: ({ secret, headers, body }) => hmac.validateHMACSignature(secret, headers.hmacsignature, body),
    };
  },
  discord: () => ({
    verify: ({ public: key, headers, body }) =>
      require("discord-interactions").verifyKey(body, headers["x-signature-ed25519"], headers["x-signature-timestamp"], key),
  }),
  sendgrid: () => {
    const { EventWebhook } = require("@sendgrid/eventwebhook");
    return {
      verify: ({ public: key, headers, body }) => {
        const webhook = new EventWebhook();
        return webhook.verifySignature(
          webhook.convertPublicKeyToECDSA(key), body,
          headers["x-twilio-email-event-webhook-signature"], headers["x-twilio-email-event-webhook-timestamp"],
        );
      },
    };
  },
  workos: () => {
    const { WorkOS } = require("@workos-inc/node");
    const { webhooks } = new WorkOS("key");
    return {
      sign: async ({ secret, timestamp, body }) => {
        const sent = timestamp * 1000;
        // It signs JSON that it writes itself.
        return { "workos-signature": `t=${sent}, v1=${await webhooks.computeSignature(String(sent), JSON.parse(body), secret)}` };
      },
      verify: ({ secret, headers, body }) =>
        webhooks.verifyHeader({ payload: JSON.parse(body), sigHeader: headers["workos-signature"], secret }),
    };
  },
  openai: () => {
    const { OpenAI } = require("openai");
    const { webhooks } = new OpenAI({ apiKey: "key" });
    return { verify: async ({ secret, headers, body }) => (await webhooks.verifySignature(body, headers, secret), true) };
  },
  mux: () => {
    const { Mux } = require("@mux/mux-node");
    const { webhooks } = new Mux({ tokenId: "id", tokenSecret: "secret" });
    return { verify: async ({ secret, headers, body }) => (await webhooks.verifySignature(body, headers, secret), true) };
  },
  coinbase: () => {
    const { Webhook } = require("coinbase-commerce-node");
    return {
      sign: ({ secret, body }) => ({ "x-cc-webhook-signature": Webhook.computeSignature(body, secret) }),
      verify: ({ secret, headers, body }) => Webhook.verifySigHeader(body, headers["x-cc-webhook-signature"], secret),
    };
  },
  rfc9421: () => messageSignatures("hmac-sha256", (secret) => Buffer.from(secret, "base64"), (secret) => Buffer.from(secret, "base64")),
  "rfc9421-ed25519": () => {
    // What stands before the 32 bytes of a key in DER.
    const der = (prefix, key) => Buffer.concat([Buffer.from(prefix, "hex"), Buffer.from(key, "base64")]);
    return messageSignatures(
      "ed25519",
      (secret) => createPrivateKey({ key: der("302e020100300506032b657004220420", secret.replace("whsk_", "")), format: "der", type: "pkcs8" }),
      (key) => createPublicKey({ key: der("302a300506032b6570032100", key), format: "der", type: "spki" }),
    );
  },
};

function messageSignatures(alg, signingKey, verifyingKey) {
  const { httpbis, createSigner, createVerifier } = require("http-message-signatures");
  // The library leaves the digest of the body to those who call it.
  const digest = (body) => `sha-256=:${createHash("sha256").update(body).digest("base64")}:`;
  return {
    sign: async ({ secret, id, timestamp, method, url, body }) => {
      const signed = await httpbis.signMessage(
        {
          key: createSigner(signingKey(secret), alg, "key-1"),
          name: "sdk",
          params: ["keyid", "created", "nonce", "alg"],
          fields: ["@method", "@target-uri", "content-digest"],
          paramValues: { created: seconds(timestamp), nonce: id },
        },
        { method, url, headers: { "content-digest": digest(body) } },
      );
      return Object.fromEntries(Object.entries(signed.headers).map(([name, value]) => [name.toLowerCase(), String(value)]));
    },
    verify: ({ secret, public: key, method, url, headers, body }) =>
      headers["content-digest"] === digest(body) && httpbis.verifyMessage(
        { keyLookup: async () => ({ id: "key-1", algs: [alg], verify: createVerifier(verifyingKey(key ?? secret), alg) }), tolerance: 5 },
        { method, url, headers },
      ),
  };
}

const loaded = new Map();

async function answered(request) {
  let answer;
  try {
    if (!loaded.has(request.sdk)) loaded.set(request.sdk, await vendors[request.sdk]());
  } catch (error) {
    answer = { unusable: `${error.stack}` };
  }
  const vendor = loaded.get(request.sdk);
  if (vendor) {
    try {
      answer = request.do === "sign" ? { headers: await vendor.sign(request) } : { valid: truthy(await vendor.verify(request)) };
    } catch (error) {
      answer = request.do === "sign" ? { error: `${error.stack}` } : { valid: false, error: `${error.message}` };
    }
  }
  return answer;
}

function serve() {
  const receivers = JSON.parse(process.env.RECEIVERS);
  const arrived = [];
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const name = request.url.slice(1);
    if (name === "arrived") return response.end(JSON.stringify(arrived));
    const { sdk, secret } = receivers[name];
    const body = Buffer.concat(chunks).toString("utf8");
    const url = `http://${request.headers.host}${request.url}`;
    const { valid, error, unusable } = await answered({
      sdk, do: "verify", secret, method: request.method, url, headers: request.headers, body,
    });
    const id = body && JSON.parse(body).id;
    const again = arrived.some((one) => one.name === name && one.id === id && one.valid);
    arrived.push({ name, id, valid: truthy(valid), error: error ?? unusable });
    response.writeHead(valid ? (again ? 204 : 500) : 401).end();
  });
  server.listen(0, "127.0.0.1", () => write(`${server.address().port}\n`));
}

if (process.argv[3] === "serve") {
  serve();
} else {
  for await (const line of createInterface({ input: process.stdin })) {
    write(`${JSON.stringify(await answered(JSON.parse(line)))}\n`);
  }
}
