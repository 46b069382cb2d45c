-- One receipt for each event of a source that a consumer handles. Text compares as bytes.
CREATE TABLE countersign_inbox (
    id              bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer        text    COLLATE "C" NOT NULL,
    source          text    COLLATE "C" NOT NULL,
    key             text    COLLATE "C" NOT NULL,
    event_id        text    COLLATE "C",
    -- What the first delivery said that it belongs to.
    correlation_id  text    COLLATE "C",
    -- Of the body seen first.
    body_digest     bytea   NOT NULL CHECK (length(body_digest) = 32),
    other_bodies    bigint  NOT NULL DEFAULT 0 CHECK (other_bodies >= 0),
    state           text    COLLATE "C" NOT NULL
        CHECK (state IN ('received', 'processing', 'succeeded', 'failed', 'dead_letter')),
    attempts        bigint  NOT NULL CHECK (attempts >= 0),
    token           bytea   CHECK (length(token) = 16),
    -- The token of the last run that came to an end: tells whether an end whose answer was lost stands.
    ended_token     bytea   CHECK (length(ended_token) = 16),
    -- Times are microseconds since the Unix epoch, by the clock of the database.
    lease_until     bigint,
    -- From when on it may be claimed. Who has it has an event that is owed: it keeps one until it has an end, and while
    -- it is being processed that is the end of the lease.
    due             bigint,
    quarantined     boolean NOT NULL DEFAULT false,
    ordering_key    text    COLLATE "C",
    first_seen      bigint  NOT NULL,
    -- The last change of state: what purge and lists go by.
    updated         bigint  NOT NULL,
    error           text,
    reason          text,
    result_status   bigint  CHECK (result_status BETWEEN 100 AND 999),
    result_headers  bytea,
    -- NULL beside a status: the body was not kept, or has been purged.
    result_body     bytea,
    request_method  text,
    request_target  text,
    request_headers bytea,
    request_body    bytea,
    request_proof   text,
    CHECK ((state = 'processing') = (token IS NOT NULL)),
    CHECK ((state = 'processing') = (lease_until IS NOT NULL)),
    CHECK ((state = 'dead_letter' OR quarantined) = (reason IS NOT NULL)),
    CHECK (state <> 'succeeded' OR result_status IS NOT NULL),
    CHECK (state <> 'received' OR request_method IS NOT NULL),
    CHECK (state <> 'received' OR (due IS NULL) = quarantined),
    CHECK (state = 'received' OR NOT quarantined),
    CHECK (state IN ('received', 'processing', 'failed') OR due IS NULL),
    CHECK (state <> 'processing' OR due IS NULL OR due = lease_until),
    CHECK (due IS NULL OR request_method IS NOT NULL),
    CHECK ((result_status IS NULL) = (result_headers IS NULL)),
    CHECK (result_status IS NOT NULL OR result_body IS NULL),
    CHECK ((request_method IS NULL) = (request_target IS NULL)
       AND (request_method IS NULL) = (request_headers IS NULL)
       AND (request_method IS NULL) = (request_body IS NULL)
       AND (request_method IS NULL) = (request_proof IS NULL))
-- Every receipt is written two times: room for the second one on the same page.
) WITH (fillfactor = 70);

-- The key stands first: it tells receipts apart at once, and finds one where its scope is not known.
CREATE UNIQUE INDEX countersign_inbox_key ON countersign_inbox (key, source, consumer);

-- For lists and for purge.
CREATE INDEX countersign_inbox_state ON countersign_inbox (state, updated, id);

-- Bodies that will age.
CREATE INDEX countersign_inbox_result ON countersign_inbox (updated, id)
    WHERE state IN ('succeeded', 'failed') AND result_body IS NOT NULL;

-- What is owed to a consumer, the longest due first.
CREATE INDEX countersign_inbox_due ON countersign_inbox (consumer, due, id) WHERE due IS NOT NULL;

-- What is owed and has an order, the first one first.
CREATE INDEX countersign_inbox_order ON countersign_inbox (consumer, source, ordering_key, id)
    WHERE ordering_key IS NOT NULL AND due IS NOT NULL;

-- Ids that are only labels. Where the id is the key this index has no entry.
CREATE INDEX countersign_inbox_label ON countersign_inbox (event_id)
    WHERE event_id IS NOT NULL AND event_id <> key;

-- What belongs together, as lists show it.
CREATE INDEX countersign_inbox_correlation ON countersign_inbox (correlation_id, updated, id)
    WHERE correlation_id IS NOT NULL;

-- The last failed runs of a receipt.
CREATE TABLE countersign_inbox_failure (
    receipt bigint NOT NULL REFERENCES countersign_inbox (id) ON DELETE CASCADE,
    seq     bigint NOT NULL,
    attempt bigint NOT NULL,
    at      bigint NOT NULL,
    status  bigint,
    error   text   NOT NULL,
    PRIMARY KEY (receipt, seq)
);
