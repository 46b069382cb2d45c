CREATE TABLE countersign_attempt (
    message INTEGER NOT NULL REFERENCES countersign_outbox (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    replay INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    took INTEGER NOT NULL,
    status INTEGER,
    headers BLOB NOT NULL,
    body BLOB NOT NULL,
    error TEXT,
    kind TEXT,
    PRIMARY KEY (message, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE countersign_endpoint (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    url TEXT NOT NULL,
    scheme TEXT NOT NULL,
    secrets TEXT NOT NULL,
    types TEXT NOT NULL,
    headers BLOB NOT NULL,
    settings TEXT NOT NULL,
    disabled TEXT,
    disabled_since INTEGER,
    paused_until INTEGER,
    failing_since INTEGER,
    failures INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    CHECK ((failing_since IS NULL) = (failures = 0)),
    CHECK ((disabled IS NULL) = (disabled_since IS NULL))
) STRICT;
CREATE TABLE countersign_inbox (
    id INTEGER PRIMARY KEY,
    consumer TEXT NOT NULL,
    source TEXT NOT NULL,
    key TEXT NOT NULL,
    event_id TEXT,
    correlation_id TEXT,
    body_digest BLOB NOT NULL CHECK (length(body_digest) = 32),
    other_bodies INTEGER NOT NULL DEFAULT 0 CHECK (other_bodies >= 0),
    state TEXT NOT NULL CHECK (state IN ('received', 'processing', 'succeeded', 'failed', 'dead_letter')),
    attempts INTEGER NOT NULL CHECK (attempts >= 0),
    token BLOB CHECK (length(token) = 16),
    lease_until INTEGER,
    due INTEGER,
    quarantined INTEGER NOT NULL DEFAULT 0 CHECK (quarantined IN (0, 1)),
    ordering_key TEXT,
    first_seen INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    error TEXT,
    reason TEXT,
    result_status INTEGER CHECK (result_status BETWEEN 100 AND 999),
    result_headers BLOB,
    result_body BLOB,
    request_method TEXT,
    request_target TEXT,
    request_headers BLOB,
    request_body BLOB,
    request_proof TEXT,
    CHECK ((state = 'processing') = (token IS NOT NULL)),
    CHECK ((state = 'processing') = (lease_until IS NOT NULL)),
    CHECK ((state = 'dead_letter' OR quarantined = 1) = (reason IS NOT NULL)),
    CHECK (state <> 'succeeded' OR result_status IS NOT NULL),
    CHECK (state <> 'received' OR request_method IS NOT NULL),
    CHECK (state <> 'received' OR (due IS NULL) = (quarantined = 1)),
    CHECK (state = 'received' OR quarantined = 0),
    CHECK (state IN ('received', 'processing', 'failed') OR due IS NULL),
    CHECK (state <> 'processing' OR due IS NULL OR due = lease_until),
    CHECK (due IS NULL OR request_method IS NOT NULL),
    CHECK ((result_status IS NULL) = (result_headers IS NULL)),
    CHECK (result_status IS NOT NULL OR result_body IS NULL),
    CHECK ((request_method IS NULL) = (request_target IS NULL)
    AND (request_method IS NULL) = (request_headers IS NULL)
    AND (request_method IS NULL) = (request_body IS NULL)
    AND (request_method IS NULL) = (request_proof IS NULL))
) STRICT;
CREATE INDEX countersign_inbox_correlation ON countersign_inbox (correlation_id, updated, id)
    WHERE correlation_id IS NOT NULL;
CREATE INDEX countersign_inbox_due ON countersign_inbox (consumer, due, id) WHERE due IS NOT NULL;
CREATE UNIQUE INDEX countersign_inbox_key ON countersign_inbox (key, source, consumer);
CREATE INDEX countersign_inbox_label ON countersign_inbox (event_id)
    WHERE event_id IS NOT NULL AND event_id <> key;
CREATE INDEX countersign_inbox_order ON countersign_inbox (consumer, source, ordering_key, id)
    WHERE ordering_key IS NOT NULL AND due IS NOT NULL;
CREATE INDEX countersign_inbox_result ON countersign_inbox (updated)
    WHERE state IN ('succeeded', 'failed') AND result_body IS NOT NULL;
CREATE INDEX countersign_inbox_state ON countersign_inbox (state, updated, id, consumer, source);
CREATE TABLE countersign_inbox_failure (
    receipt INTEGER NOT NULL REFERENCES countersign_inbox (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at INTEGER NOT NULL,
    status INTEGER,
    error TEXT NOT NULL,
    PRIMARY KEY (receipt, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE countersign_outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    endpoint TEXT NOT NULL,
    message_id TEXT NOT NULL,
    type TEXT NOT NULL,
    content_type TEXT NOT NULL,
    ordering_key TEXT,
    correlation_id TEXT,
    causation_id TEXT,
    schema_version INTEGER,
    traceparent TEXT,
    state TEXT NOT NULL
    CHECK (state IN ('pending', 'delivering', 'succeeded', 'failed', 'dead_letter', 'cancelled')),
    attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    replays INTEGER NOT NULL DEFAULT 0 CHECK (replays BETWEEN 0 AND 4294967295),
    noted INTEGER NOT NULL DEFAULT 0 CHECK (noted BETWEEN 0 AND 1000000000000000),
    token BLOB CHECK (length(token) = 16),
    due INTEGER,
    claim_at INTEGER,
    created INTEGER NOT NULL,
    since INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    last_status INTEGER CHECK (last_status BETWEEN 100 AND 999),
    last_error TEXT,
    reason TEXT,
    lane INTEGER NOT NULL GENERATED ALWAYS AS
    (CASE WHEN claim_at > due THEN 2 WHEN attempts > 0 OR replays > 0 THEN 1 ELSE 0 END) VIRTUAL,
    payload BLOB NOT NULL,
    CHECK ((state IN ('pending', 'delivering')) = (due IS NOT NULL)),
    CHECK ((due IS NULL) = (claim_at IS NULL)),
    CHECK (claim_at >= due),
    CHECK (state = 'dead_letter' OR (state = 'delivering') = (token IS NOT NULL)),
    CHECK (state <> 'delivering' OR attempts > 0),
    CHECK ((state IN ('failed', 'dead_letter', 'cancelled')) = (reason IS NOT NULL))
) STRICT;
CREATE INDEX countersign_outbox_correlation ON countersign_outbox (correlation_id, updated, id)
    WHERE correlation_id IS NOT NULL;
CREATE INDEX countersign_outbox_due ON countersign_outbox (endpoint, lane, claim_at, id) WHERE claim_at IS NOT NULL;
CREATE UNIQUE INDEX countersign_outbox_key ON countersign_outbox (message_id, endpoint);
CREATE INDEX countersign_outbox_order ON countersign_outbox (endpoint, ordering_key, state, id)
    WHERE ordering_key IS NOT NULL AND state IN ('pending', 'delivering', 'failed', 'dead_letter');
CREATE INDEX countersign_outbox_state ON countersign_outbox (state, updated, id, endpoint, type);
CREATE TABLE countersign_saga (
    saga TEXT NOT NULL,
    instance TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version > 0),
    step TEXT,
    body TEXT NOT NULL,
    created INTEGER NOT NULL,
    moved INTEGER NOT NULL,
    ended INTEGER,
    PRIMARY KEY (saga, instance)
) STRICT, WITHOUT ROWID;
CREATE INDEX countersign_saga_ended ON countersign_saga (ended) WHERE ended IS NOT NULL;
CREATE INDEX countersign_saga_open ON countersign_saga (saga, moved) WHERE ended IS NULL;
CREATE TABLE countersign_saga_step (
    saga TEXT NOT NULL,
    instance TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number > 0),
    at INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    answer TEXT NOT NULL CHECK (answer IN ('moved', 'ignored', 'deferred', 'refused')),
    from_step TEXT,
    to_step TEXT,
    reason TEXT,
    sent TEXT NOT NULL,
    PRIMARY KEY (saga, instance, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE countersign_schema (
    version INTEGER PRIMARY KEY,
    breaking INTEGER NOT NULL CHECK (breaking IN (0, 1)),
    applied_at INTEGER NOT NULL,
    checked_at INTEGER
) STRICT;
CREATE TABLE sqlite_sequence(name,seq);
