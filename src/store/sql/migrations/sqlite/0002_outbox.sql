-- Who messages go to. What is a list, or belongs together, is JSON that only the store reads; headers are one block.
CREATE TABLE countersign_endpoint (
    id            INTEGER PRIMARY KEY,
    name          TEXT    NOT NULL UNIQUE,
    url           TEXT    NOT NULL,
    scheme        TEXT    NOT NULL,
    -- Where its secrets are found, never the secrets.
    secrets       TEXT    NOT NULL,
    types         TEXT    NOT NULL,
    headers       BLOB    NOT NULL,
    settings      TEXT    NOT NULL,
    -- Why it gets nothing until it is enabled.
    disabled      TEXT,
    -- When that began, whatever was changed since.
    disabled_since INTEGER,
    -- Times are microseconds since the Unix epoch, by the clock of the store.
    paused_until  INTEGER,
    failing_since INTEGER,
    failures      INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
    created       INTEGER NOT NULL,
    updated       INTEGER NOT NULL,
    CHECK ((failing_since IS NULL) = (failures = 0)),
    CHECK ((disabled IS NULL) = (disabled_since IS NULL))
) STRICT;

-- One row for each message on its way to one endpoint. An endpoint is known by its name, so that what was sent to it is
-- remembered when it is gone. A number is never given twice.
CREATE TABLE countersign_outbox (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    endpoint       TEXT    NOT NULL,
    message_id     TEXT    NOT NULL,
    type           TEXT    NOT NULL,
    content_type   TEXT    NOT NULL,
    ordering_key   TEXT,
    correlation_id TEXT,
    causation_id   TEXT,
    schema_version INTEGER,
    traceparent    TEXT,
    state          TEXT    NOT NULL
        CHECK (state IN ('pending', 'delivering', 'succeeded', 'failed', 'dead_letter', 'cancelled')),
    attempts       INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    replays        INTEGER NOT NULL DEFAULT 0 CHECK (replays BETWEEN 0 AND 4294967295),
    -- How many attempts have been noted, ever. Far from the end of the numbers: each statement may add one.
    noted          INTEGER NOT NULL DEFAULT 0 CHECK (noted BETWEEN 0 AND 1000000000000000),
    -- Whoever delivers it has it. It stays with one whose endpoint is removed meanwhile, which is a dead letter at once:
    -- what was delivered all the same has succeeded.
    token          BLOB    CHECK (length(token) = 16),
    -- From when on it may be claimed; while it is being delivered that is the end of the lease.
    due            INTEGER,
    -- When claims look at it. Later than `due` while it is held up by its ordering key.
    claim_at       INTEGER,
    created        INTEGER NOT NULL,
    -- When it was enqueued, or last replayed: its age is counted from here.
    since          INTEGER NOT NULL,
    -- The last change of state: what purge and lists go by.
    updated        INTEGER NOT NULL,
    last_status    INTEGER CHECK (last_status BETWEEN 100 AND 999),
    last_error     TEXT,
    reason         TEXT,
    -- Never tried: 0. Tried: 1. Held up: 2.
    lane           INTEGER NOT NULL GENERATED ALWAYS AS
        (CASE WHEN claim_at > due THEN 2 WHEN attempts > 0 OR replays > 0 THEN 1 ELSE 0 END) VIRTUAL,
    -- Last, so that a long one need not be passed over to read the rest.
    payload        BLOB    NOT NULL,
    CHECK ((state IN ('pending', 'delivering')) = (due IS NOT NULL)),
    CHECK ((due IS NULL) = (claim_at IS NULL)),
    CHECK (claim_at >= due),
    CHECK (state = 'dead_letter' OR (state = 'delivering') = (token IS NOT NULL)),
    CHECK (state <> 'delivering' OR attempts > 0),
    CHECK ((state IN ('failed', 'dead_letter', 'cancelled')) = (reason IS NOT NULL))
) STRICT;

-- The id stands first: it tells messages apart at once, and finds all that one event became.
CREATE UNIQUE INDEX countersign_outbox_key ON countersign_outbox (message_id, endpoint);

-- What has no end, by endpoint and lane, the longest due first.
CREATE INDEX countersign_outbox_due ON countersign_outbox (endpoint, lane, claim_at, id) WHERE claim_at IS NOT NULL;

-- What has an order and may hold others up, the first one of each state first.
CREATE INDEX countersign_outbox_order ON countersign_outbox (endpoint, ordering_key, state, id)
    WHERE ordering_key IS NOT NULL AND state IN ('pending', 'delivering', 'failed', 'dead_letter');

-- For lists and for purge. What lists are filtered by stands at its end, so that a filter that fits few rows goes
-- through the index and not through the rows.
CREATE INDEX countersign_outbox_state ON countersign_outbox (state, updated, id, endpoint, type);

-- What belongs together, as lists show it.
CREATE INDEX countersign_outbox_correlation ON countersign_outbox (correlation_id, updated, id)
    WHERE correlation_id IS NOT NULL;

-- The last attempts of each message.
CREATE TABLE countersign_attempt (
    message INTEGER NOT NULL REFERENCES countersign_outbox (id) ON DELETE CASCADE,
    seq     INTEGER NOT NULL,
    replay  INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    -- Microseconds.
    took    INTEGER NOT NULL,
    status  INTEGER,
    headers BLOB    NOT NULL,
    body    BLOB    NOT NULL,
    error   TEXT,
    kind    TEXT,
    PRIMARY KEY (message, seq)
) STRICT, WITHOUT ROWID;
