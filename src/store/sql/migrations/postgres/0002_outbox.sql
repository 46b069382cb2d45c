-- Who messages go to. What is a list, or belongs together, is JSON that only the store reads; headers are one block.
CREATE TABLE countersign_endpoint (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name          text   COLLATE "C" NOT NULL,
    url           text   NOT NULL,
    scheme        text   NOT NULL,
    -- Where its secrets are found, never the secrets.
    secrets       text   NOT NULL,
    types         text   NOT NULL,
    headers       bytea  NOT NULL,
    settings      text   NOT NULL,
    -- Why it gets nothing until it is enabled.
    disabled      text,
    -- When that began, whatever was changed since.
    disabled_since bigint,
    -- Times are microseconds since the Unix epoch, by the clock of the database.
    paused_until  bigint,
    failing_since bigint,
    failures      bigint NOT NULL DEFAULT 0 CHECK (failures >= 0),
    created       bigint NOT NULL,
    updated       bigint NOT NULL,
    CHECK ((failing_since IS NULL) = (failures = 0)),
    CHECK ((disabled IS NULL) = (disabled_since IS NULL))
-- How it has been doing is written often: room for that on the same page.
) WITH (fillfactor = 50);

CREATE UNIQUE INDEX countersign_endpoint_name ON countersign_endpoint (name);

-- One row for each message on its way to one endpoint. Text compares as bytes. An endpoint is known by its name, so that
-- what was sent to it is remembered when it is gone.
CREATE TABLE countersign_outbox (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint       text   COLLATE "C" NOT NULL,
    message_id     text   COLLATE "C" NOT NULL,
    type           text   COLLATE "C" NOT NULL,
    content_type   text   NOT NULL,
    payload        bytea  NOT NULL,
    ordering_key   text   COLLATE "C",
    correlation_id text   COLLATE "C",
    causation_id   text   COLLATE "C",
    schema_version bigint,
    traceparent    text,
    state          text   COLLATE "C" NOT NULL
        CHECK (state IN ('pending', 'delivering', 'succeeded', 'failed', 'dead_letter', 'cancelled')),
    attempts       bigint NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    replays        bigint NOT NULL DEFAULT 0 CHECK (replays BETWEEN 0 AND 4294967295),
    -- How many attempts have been noted, ever. Far from the end of the numbers: each statement may add one.
    noted          bigint NOT NULL DEFAULT 0 CHECK (noted BETWEEN 0 AND 1000000000000000),
    -- Whoever delivers it has it. It stays with one whose endpoint is removed meanwhile, which is a dead letter at once:
    -- what was delivered all the same has succeeded.
    token          bytea  CHECK (length(token) = 16),
    -- The token of the call that made it, or of the last attempt that came to an end: tells whether a change whose answer
    -- was lost stands.
    last_token     bytea  CHECK (length(last_token) = 16),
    -- From when on it may be claimed; while it is being delivered that is the end of the lease.
    due            bigint,
    -- When claims look at it. Later than `due` while it is held up by its ordering key.
    claim_at       bigint,
    created        bigint NOT NULL,
    -- When it was enqueued, or last replayed: its age is counted from here.
    since          bigint NOT NULL,
    -- The last change of state: what purge and lists go by.
    updated        bigint NOT NULL,
    last_status    bigint CHECK (last_status BETWEEN 100 AND 999),
    last_error     text,
    reason         text,
    -- Never tried: 0. Tried: 1. Held up: 2.
    lane           bigint NOT NULL GENERATED ALWAYS AS
        (CASE WHEN claim_at > due THEN 2 WHEN attempts > 0 OR replays > 0 THEN 1 ELSE 0 END) STORED,
    CHECK ((state IN ('pending', 'delivering')) = (due IS NOT NULL)),
    CHECK ((due IS NULL) = (claim_at IS NULL)),
    CHECK (claim_at >= due),
    CHECK (state = 'dead_letter' OR (state = 'delivering') = (token IS NOT NULL)),
    CHECK (state <> 'delivering' OR attempts > 0),
    CHECK ((state IN ('failed', 'dead_letter', 'cancelled')) = (reason IS NOT NULL))
);

-- The id stands first: it tells messages apart at once, and finds all that one event became.
CREATE UNIQUE INDEX countersign_outbox_key ON countersign_outbox (message_id, endpoint);

-- What has no end, by endpoint and lane, the longest due first.
CREATE INDEX countersign_outbox_due ON countersign_outbox (endpoint, lane, claim_at, id) WHERE claim_at IS NOT NULL;

-- What has an order and may hold others up, the first one of each state first.
CREATE INDEX countersign_outbox_order ON countersign_outbox (endpoint, ordering_key, state, id)
    WHERE ordering_key IS NOT NULL AND state IN ('pending', 'delivering', 'failed', 'dead_letter');

-- For lists and for purge. What lists are filtered by stands at its end, so that a filter that fits few rows goes
-- through the index and not through the rows.
CREATE INDEX countersign_outbox_state ON countersign_outbox (state, updated, id) INCLUDE (endpoint, type);

-- What belongs together, as lists show it.
CREATE INDEX countersign_outbox_correlation ON countersign_outbox (correlation_id, updated, id)
    WHERE correlation_id IS NOT NULL;

-- The last attempts of each message. Without a foreign key, which would lock and look at the message for each of them: the
-- store removes them with it.
CREATE TABLE countersign_attempt (
    message bigint NOT NULL,
    seq     bigint NOT NULL,
    replay  bigint NOT NULL,
    number  bigint NOT NULL,
    at      bigint NOT NULL,
    -- Microseconds.
    took    bigint NOT NULL,
    status  bigint,
    headers bytea  NOT NULL,
    body    bytea  NOT NULL,
    error   text,
    kind    text,
    PRIMARY KEY (message, seq)
);
