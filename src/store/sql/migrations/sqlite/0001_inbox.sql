-- One receipt for each event of a source that a consumer handles.
CREATE TABLE countersign_inbox (
    id              INTEGER PRIMARY KEY,
    consumer        TEXT    NOT NULL,
    source          TEXT    NOT NULL,
    key             TEXT    NOT NULL,
    event_id        TEXT,
    -- What the first delivery said that it belongs to.
    correlation_id  TEXT,
    -- Of the body seen first.
    body_digest     BLOB    NOT NULL CHECK (length(body_digest) = 32),
    other_bodies    INTEGER NOT NULL DEFAULT 0 CHECK (other_bodies >= 0),
    state           TEXT    NOT NULL CHECK (state IN ('received', 'processing', 'succeeded', 'failed', 'dead_letter')),
    attempts        INTEGER NOT NULL CHECK (attempts >= 0),
    token           BLOB    CHECK (length(token) = 16),
    -- Times are microseconds since the Unix epoch, by the clock of the store.
    lease_until     INTEGER,
    -- From when on it may be claimed. Who has it has an event that is owed: it keeps one until it has an end, and while
    -- it is being processed that is the end of the lease.
    due             INTEGER,
    quarantined     INTEGER NOT NULL DEFAULT 0 CHECK (quarantined IN (0, 1)),
    ordering_key    TEXT,
    first_seen      INTEGER NOT NULL,
    -- The last change of state: what purge and lists go by.
    updated         INTEGER NOT NULL,
    error           TEXT,
    reason          TEXT,
    result_status   INTEGER CHECK (result_status BETWEEN 100 AND 999),
    result_headers  BLOB,
    -- NULL beside a status: the body was not kept, or has been purged.
    result_body     BLOB,
    request_method  TEXT,
    request_target  TEXT,
    request_headers BLOB,
    request_body    BLOB,
    request_proof   TEXT,
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

-- The key stands first: it tells receipts apart at once, and finds one where its scope is not known.
CREATE UNIQUE INDEX countersign_inbox_key ON countersign_inbox (key, source, consumer);

-- For lists and for purge. What is being processed is a small part of it, so that entering and leaving cost little. What lists
-- are filtered by stands at its end, so that a filter that fits few rows goes through the index and not through the rows.
CREATE INDEX countersign_inbox_state ON countersign_inbox (state, updated, id, consumer, source);

-- Bodies that will age.
CREATE INDEX countersign_inbox_result ON countersign_inbox (updated)
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
    receipt INTEGER NOT NULL REFERENCES countersign_inbox (id) ON DELETE CASCADE,
    seq     INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    status  INTEGER,
    error   TEXT    NOT NULL,
    PRIMARY KEY (receipt, seq)
) STRICT, WITHOUT ROWID;
