-- Who messages go to. What is a list, or belongs together, is JSON that only the store reads; headers are one block. Text is
-- kept as bytes.
CREATE TABLE IF NOT EXISTS countersign_endpoint (
    id            BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name          VARBINARY(255) NOT NULL,
    url           MEDIUMBLOB NOT NULL,
    scheme        VARBINARY(255) NOT NULL,
    -- Where its secrets are found, never the secrets.
    secrets       MEDIUMBLOB NOT NULL,
    types         MEDIUMBLOB NOT NULL,
    headers       MEDIUMBLOB NOT NULL,
    settings      MEDIUMBLOB NOT NULL,
    -- Why it gets nothing until it is enabled.
    disabled      TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    -- When that began, whatever was changed since.
    disabled_since BIGINT,
    -- Times are microseconds since the Unix epoch, by the clock of the database.
    paused_until  BIGINT,
    failing_since BIGINT,
    failures      BIGINT NOT NULL DEFAULT 0,
    created       BIGINT NOT NULL,
    updated       BIGINT NOT NULL,
    UNIQUE KEY countersign_endpoint_name (name),
    CONSTRAINT countersign_endpoint_failures CHECK (failures >= 0),
    CONSTRAINT countersign_endpoint_failing CHECK ((failing_since IS NULL) = (failures = 0)),
    CONSTRAINT countersign_endpoint_disabled CHECK ((disabled IS NULL) = (disabled_since IS NULL))
) ENGINE = InnoDB;

-- One row for each message on its way to one endpoint. An endpoint is known by its name, so that what was sent to it is
-- remembered when it is gone.
CREATE TABLE IF NOT EXISTS countersign_outbox (
    id             BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    endpoint       VARBINARY(255) NOT NULL,
    message_id     VARBINARY(255) NOT NULL,
    type           VARBINARY(255) NOT NULL,
    content_type   VARBINARY(255) NOT NULL,
    payload        LONGBLOB NOT NULL,
    ordering_key   VARBINARY(255),
    correlation_id VARBINARY(255),
    causation_id   VARBINARY(255),
    schema_version BIGINT,
    traceparent    VARBINARY(255),
    state          VARBINARY(16) NOT NULL,
    attempts       BIGINT NOT NULL DEFAULT 0,
    replays        BIGINT NOT NULL DEFAULT 0,
    -- How many attempts have been noted, ever. Far from the end of the numbers: each statement may add one.
    noted          BIGINT NOT NULL DEFAULT 0,
    -- Whoever delivers it has it. It stays with one whose endpoint is removed meanwhile, which is a dead letter at once:
    -- what was delivered all the same has succeeded.
    token          BINARY(16),
    -- The token of the call that made it, or of the last attempt that came to an end: tells whether a change whose answer
    -- was lost stands, and which rows of a statement were made.
    last_token     BINARY(16),
    -- From when on it may be claimed; while it is being delivered that is the end of the lease.
    due            BIGINT,
    -- When claims look at it. Later than `due` while it is held up by its ordering key.
    claim_at       BIGINT,
    created        BIGINT NOT NULL,
    -- When it was enqueued, or last replayed: its age is counted from here.
    since          BIGINT NOT NULL,
    -- The last change of state: what purge and lists go by.
    updated        BIGINT NOT NULL,
    last_status    BIGINT,
    last_error     TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    reason         TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    -- Never tried: 0. Tried: 1. Held up: 2.
    lane           BIGINT GENERATED ALWAYS AS
        (CASE WHEN claim_at > due THEN 2 WHEN attempts > 0 OR replays > 0 THEN 1 ELSE 0 END) STORED,
    -- What has no end, and what has an order and may hold others up: what other databases have a partial index for.
    due_to         VARBINARY(255) GENERATED ALWAYS AS (CASE WHEN claim_at IS NOT NULL THEN endpoint END) STORED,
    held_order     VARBINARY(255) GENERATED ALWAYS AS
        (CASE WHEN state IN ('pending', 'delivering', 'failed', 'dead_letter') THEN ordering_key END) STORED,
    -- The id stands first: it tells messages apart at once, and finds all that one event became.
    UNIQUE KEY countersign_outbox_key (message_id, endpoint),
    -- What has no end, by endpoint and lane, the longest due first.
    KEY countersign_outbox_due (due_to, lane, claim_at, id),
    -- What has an order and may hold others up, the first one of each state first.
    KEY countersign_outbox_order (held_order, endpoint, state, id),
    -- For lists and for purge. What lists are filtered by stands at its end, so that a filter that fits few rows goes
    -- through the index and not through the rows.
    KEY countersign_outbox_state (state, updated, id, endpoint, type),
    -- What belongs together. It never changes: an index cannot leave out here what belongs to nothing.
    KEY countersign_outbox_correlation (correlation_id),
    CONSTRAINT countersign_outbox_states
        CHECK (state IN ('pending', 'delivering', 'succeeded', 'failed', 'dead_letter', 'cancelled')),
    CONSTRAINT countersign_outbox_counts CHECK (attempts >= 0
        AND replays BETWEEN 0 AND 4294967295 AND noted BETWEEN 0 AND 1000000000000000),
    CONSTRAINT countersign_outbox_open CHECK ((state IN ('pending', 'delivering')) = (due IS NOT NULL)),
    CONSTRAINT countersign_outbox_claim CHECK ((due IS NULL) = (claim_at IS NULL)),
    CONSTRAINT countersign_outbox_claim_at CHECK (claim_at >= due),
    CONSTRAINT countersign_outbox_token
        CHECK (state = 'dead_letter' OR (state = 'delivering') = (token IS NOT NULL)),
    CONSTRAINT countersign_outbox_attempts CHECK (state <> 'delivering' OR attempts > 0),
    CONSTRAINT countersign_outbox_status CHECK (last_status IS NULL OR last_status BETWEEN 100 AND 999),
    CONSTRAINT countersign_outbox_reason
        CHECK ((state IN ('failed', 'dead_letter', 'cancelled')) = (reason IS NOT NULL))
) ENGINE = InnoDB;

-- The last attempts of each message. Without a foreign key, which would lock the message: the store removes them with it.
CREATE TABLE IF NOT EXISTS countersign_attempt (
    message BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    replay  BIGINT NOT NULL,
    number  BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    -- Microseconds.
    took    BIGINT NOT NULL,
    status  BIGINT,
    headers MEDIUMBLOB NOT NULL,
    body    MEDIUMBLOB NOT NULL,
    error   TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    kind    TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    PRIMARY KEY (message, seq)
) ENGINE = InnoDB;
