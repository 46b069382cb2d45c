CREATE TABLE countersign_attempt (
    message bigint NOT NULL,
    seq bigint NOT NULL,
    replay bigint NOT NULL,
    number bigint NOT NULL,
    at bigint NOT NULL,
    took bigint NOT NULL,
    status bigint,
    headers bytea NOT NULL,
    body bytea NOT NULL,
    error text,
    kind text,
    CONSTRAINT countersign_attempt_pkey PRIMARY KEY (message, seq)
);
CREATE UNIQUE INDEX countersign_attempt_pkey ON countersign_attempt USING btree (message, seq);
CREATE TABLE countersign_endpoint (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    name text COLLATE "C" NOT NULL,
    url text NOT NULL,
    scheme text NOT NULL,
    secrets text NOT NULL,
    types text NOT NULL,
    headers bytea NOT NULL,
    settings text NOT NULL,
    disabled text,
    disabled_since bigint,
    paused_until bigint,
    failing_since bigint,
    failures bigint NOT NULL DEFAULT 0,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    CONSTRAINT countersign_endpoint_check CHECK (((failing_since IS NULL) = (failures = 0))),
    CONSTRAINT countersign_endpoint_check1 CHECK (((disabled IS NULL) = (disabled_since IS NULL))),
    CONSTRAINT countersign_endpoint_failures_check CHECK ((failures >= 0)),
    CONSTRAINT countersign_endpoint_pkey PRIMARY KEY (id)
) WITH (fillfactor=50);
CREATE UNIQUE INDEX countersign_endpoint_name ON countersign_endpoint USING btree (name);
CREATE UNIQUE INDEX countersign_endpoint_pkey ON countersign_endpoint USING btree (id);
CREATE TABLE countersign_inbox (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    consumer text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    event_id text COLLATE "C",
    correlation_id text COLLATE "C",
    body_digest bytea NOT NULL,
    other_bodies bigint NOT NULL DEFAULT 0,
    state text COLLATE "C" NOT NULL,
    attempts bigint NOT NULL,
    token bytea,
    ended_token bytea,
    lease_until bigint,
    due bigint,
    quarantined boolean NOT NULL DEFAULT false,
    ordering_key text COLLATE "C",
    first_seen bigint NOT NULL,
    updated bigint NOT NULL,
    error text,
    reason text,
    result_status bigint,
    result_headers bytea,
    result_body bytea,
    request_method text,
    request_target text,
    request_headers bytea,
    request_body bytea,
    request_proof text,
    CONSTRAINT countersign_inbox_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT countersign_inbox_body_digest_check CHECK ((length(body_digest) = 32)),
    CONSTRAINT countersign_inbox_check CHECK (((state = 'processing'::text) = (token IS NOT NULL))),
    CONSTRAINT countersign_inbox_check1 CHECK (((state = 'processing'::text) = (lease_until IS NOT NULL))),
    CONSTRAINT countersign_inbox_check10 CHECK (((result_status IS NULL) = (result_headers IS NULL))),
    CONSTRAINT countersign_inbox_check11 CHECK (((result_status IS NOT NULL) OR (result_body IS NULL))),
    CONSTRAINT countersign_inbox_check12 CHECK ((((request_method IS NULL) = (request_target IS NULL)) AND ((request_method IS NULL) = (request_headers IS NULL)) AND ((request_method IS NULL) = (request_body IS NULL)) AND ((request_method IS NULL) = (request_proof IS NULL)))),
    CONSTRAINT countersign_inbox_check2 CHECK ((((state = 'dead_letter'::text) OR quarantined) = (reason IS NOT NULL))),
    CONSTRAINT countersign_inbox_check3 CHECK (((state <> 'succeeded'::text) OR (result_status IS NOT NULL))),
    CONSTRAINT countersign_inbox_check4 CHECK (((state <> 'received'::text) OR (request_method IS NOT NULL))),
    CONSTRAINT countersign_inbox_check5 CHECK (((state <> 'received'::text) OR ((due IS NULL) = quarantined))),
    CONSTRAINT countersign_inbox_check6 CHECK (((state = 'received'::text) OR (NOT quarantined))),
    CONSTRAINT countersign_inbox_check7 CHECK (((state = ANY (ARRAY['received'::text, 'processing'::text, 'failed'::text])) OR (due IS NULL))),
    CONSTRAINT countersign_inbox_check8 CHECK (((state <> 'processing'::text) OR (due IS NULL) OR (due = lease_until))),
    CONSTRAINT countersign_inbox_check9 CHECK (((due IS NULL) OR (request_method IS NOT NULL))),
    CONSTRAINT countersign_inbox_ended_token_check CHECK ((length(ended_token) = 16)),
    CONSTRAINT countersign_inbox_other_bodies_check CHECK ((other_bodies >= 0)),
    CONSTRAINT countersign_inbox_pkey PRIMARY KEY (id),
    CONSTRAINT countersign_inbox_result_status_check CHECK (((result_status >= 100) AND (result_status <= 999))),
    CONSTRAINT countersign_inbox_state_check CHECK ((state = ANY (ARRAY['received'::text, 'processing'::text, 'succeeded'::text, 'failed'::text, 'dead_letter'::text]))),
    CONSTRAINT countersign_inbox_token_check CHECK ((length(token) = 16))
) WITH (fillfactor=70);
CREATE INDEX countersign_inbox_correlation ON countersign_inbox USING btree (correlation_id, updated, id) WHERE (correlation_id IS NOT NULL);
CREATE INDEX countersign_inbox_due ON countersign_inbox USING btree (consumer, due, id) WHERE (due IS NOT NULL);
CREATE INDEX countersign_inbox_label ON countersign_inbox USING btree (event_id) WHERE ((event_id IS NOT NULL) AND (event_id <> key));
CREATE INDEX countersign_inbox_order ON countersign_inbox USING btree (consumer, source, ordering_key, id) WHERE ((ordering_key IS NOT NULL) AND (due IS NOT NULL));
CREATE INDEX countersign_inbox_result ON countersign_inbox USING btree (updated, id) WHERE ((state = ANY (ARRAY['succeeded'::text, 'failed'::text])) AND (result_body IS NOT NULL));
CREATE INDEX countersign_inbox_state ON countersign_inbox USING btree (state, updated, id);
CREATE UNIQUE INDEX countersign_inbox_key ON countersign_inbox USING btree (key, source, consumer);
CREATE UNIQUE INDEX countersign_inbox_pkey ON countersign_inbox USING btree (id);
CREATE TABLE countersign_inbox_failure (
    receipt bigint NOT NULL,
    seq bigint NOT NULL,
    attempt bigint NOT NULL,
    at bigint NOT NULL,
    status bigint,
    error text NOT NULL,
    CONSTRAINT countersign_inbox_failure_pkey PRIMARY KEY (receipt, seq),
    CONSTRAINT countersign_inbox_failure_receipt_fkey FOREIGN KEY (receipt) REFERENCES countersign_inbox(id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX countersign_inbox_failure_pkey ON countersign_inbox_failure USING btree (receipt, seq);
CREATE TABLE countersign_outbox (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    endpoint text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    content_type text NOT NULL,
    payload bytea NOT NULL,
    ordering_key text COLLATE "C",
    correlation_id text COLLATE "C",
    causation_id text COLLATE "C",
    schema_version bigint,
    traceparent text,
    state text COLLATE "C" NOT NULL,
    attempts bigint NOT NULL DEFAULT 0,
    replays bigint NOT NULL DEFAULT 0,
    noted bigint NOT NULL DEFAULT 0,
    token bytea,
    last_token bytea,
    due bigint,
    claim_at bigint,
    created bigint NOT NULL,
    since bigint NOT NULL,
    updated bigint NOT NULL,
    last_status bigint,
    last_error text,
    reason text,
    lane bigint NOT NULL DEFAULT 
CASE,
    WHEN (claim_at > due) THEN 2,
    WHEN ((attempts > 0) OR (replays > 0)) THEN 1,
    ELSE 0
END,
    CONSTRAINT countersign_outbox_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT countersign_outbox_check CHECK (((state = ANY (ARRAY['pending'::text, 'delivering'::text])) = (due IS NOT NULL))),
    CONSTRAINT countersign_outbox_check1 CHECK (((due IS NULL) = (claim_at IS NULL))),
    CONSTRAINT countersign_outbox_check2 CHECK ((claim_at >= due)),
    CONSTRAINT countersign_outbox_check3 CHECK (((state = 'dead_letter'::text) OR ((state = 'delivering'::text) = (token IS NOT NULL)))),
    CONSTRAINT countersign_outbox_check4 CHECK (((state <> 'delivering'::text) OR (attempts > 0))),
    CONSTRAINT countersign_outbox_check5 CHECK (((state = ANY (ARRAY['failed'::text, 'dead_letter'::text, 'cancelled'::text])) = (reason IS NOT NULL))),
    CONSTRAINT countersign_outbox_last_status_check CHECK (((last_status >= 100) AND (last_status <= 999))),
    CONSTRAINT countersign_outbox_last_token_check CHECK ((length(last_token) = 16)),
    CONSTRAINT countersign_outbox_noted_check CHECK (((noted >= 0) AND (noted <= '1000000000000000'::bigint))),
    CONSTRAINT countersign_outbox_pkey PRIMARY KEY (id),
    CONSTRAINT countersign_outbox_replays_check CHECK (((replays >= 0) AND (replays <= '4294967295'::bigint))),
    CONSTRAINT countersign_outbox_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'delivering'::text, 'succeeded'::text, 'failed'::text, 'dead_letter'::text, 'cancelled'::text]))),
    CONSTRAINT countersign_outbox_token_check CHECK ((length(token) = 16))
);
CREATE INDEX countersign_outbox_correlation ON countersign_outbox USING btree (correlation_id, updated, id) WHERE (correlation_id IS NOT NULL);
CREATE INDEX countersign_outbox_due ON countersign_outbox USING btree (endpoint, lane, claim_at, id) WHERE (claim_at IS NOT NULL);
CREATE INDEX countersign_outbox_order ON countersign_outbox USING btree (endpoint, ordering_key, state, id) WHERE ((ordering_key IS NOT NULL) AND (state = ANY (ARRAY['pending'::text, 'delivering'::text, 'failed'::text, 'dead_letter'::text])));
CREATE INDEX countersign_outbox_state ON countersign_outbox USING btree (state, updated, id) INCLUDE (endpoint, type);
CREATE UNIQUE INDEX countersign_outbox_key ON countersign_outbox USING btree (message_id, endpoint);
CREATE UNIQUE INDEX countersign_outbox_pkey ON countersign_outbox USING btree (id);
CREATE TABLE countersign_saga (
    saga text COLLATE "C" NOT NULL,
    instance text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    step text COLLATE "C",
    body text NOT NULL,
    created bigint NOT NULL,
    moved bigint NOT NULL,
    ended bigint,
    CONSTRAINT countersign_saga_pkey PRIMARY KEY (saga, instance),
    CONSTRAINT countersign_saga_version_check CHECK ((version > 0))
);
CREATE INDEX countersign_saga_ended ON countersign_saga USING btree (ended) WHERE (ended IS NOT NULL);
CREATE INDEX countersign_saga_open ON countersign_saga USING btree (saga, moved) WHERE (ended IS NULL);
CREATE UNIQUE INDEX countersign_saga_pkey ON countersign_saga USING btree (saga, instance);
CREATE TABLE countersign_saga_step (
    saga text COLLATE "C" NOT NULL,
    instance text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    at bigint NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    event_type text COLLATE "C" NOT NULL,
    answer text COLLATE "C" NOT NULL,
    from_step text COLLATE "C",
    to_step text COLLATE "C",
    reason text,
    sent text NOT NULL,
    CONSTRAINT countersign_saga_step_answer_check CHECK ((answer = ANY (ARRAY['moved'::text, 'ignored'::text, 'deferred'::text, 'refused'::text]))),
    CONSTRAINT countersign_saga_step_number_check CHECK ((number > 0)),
    CONSTRAINT countersign_saga_step_pkey PRIMARY KEY (saga, instance, number)
);
CREATE UNIQUE INDEX countersign_saga_step_pkey ON countersign_saga_step USING btree (saga, instance, number);
CREATE TABLE countersign_schema (
    version bigint NOT NULL,
    breaking boolean NOT NULL,
    applied_at bigint NOT NULL,
    checked_at bigint,
    CONSTRAINT countersign_schema_pkey PRIMARY KEY (version)
);
CREATE UNIQUE INDEX countersign_schema_pkey ON countersign_schema USING btree (version);
