-- One receipt for each event of a source that a consumer handles. What tells receipts apart is bytes: no case is folded,
-- no accent removed, no space trimmed.
--
-- Each statement may be run again: this database commits every one of them at once, so that a migration can be cut off
-- half-way, and is then repeated from its beginning.
CREATE TABLE IF NOT EXISTS countersign_inbox (
    id              BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    consumer        VARBINARY(255) NOT NULL,
    source          VARBINARY(255) NOT NULL,
    `key`           VARBINARY(255) NOT NULL,
    event_id        VARBINARY(255),
    -- What the first delivery said that it belongs to.
    correlation_id  VARBINARY(255),
    -- Of the body seen first.
    body_digest     BINARY(32) NOT NULL,
    other_bodies    BIGINT NOT NULL DEFAULT 0,
    state           VARBINARY(16) NOT NULL,
    attempts        BIGINT NOT NULL,
    token           BINARY(16),
    -- The token of the last run that came to an end: tells whether an end whose answer was lost stands.
    ended_token     BINARY(16),
    -- Times are microseconds since the Unix epoch, by the clock of the database.
    lease_until     BIGINT,
    -- From when on it may be claimed. Who has it has an event that is owed: it keeps one until it has an end, and while
    -- it is being processed that is the end of the lease.
    due             BIGINT,
    quarantined     BOOLEAN NOT NULL DEFAULT FALSE,
    ordering_key    VARBINARY(255),
    first_seen      BIGINT NOT NULL,
    -- The last change of state: what purge and lists go by.
    updated         BIGINT NOT NULL,
    error           TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    reason          TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    result_status   BIGINT,
    result_headers  MEDIUMBLOB,
    -- NULL beside a status: the body was not kept, or has been purged.
    result_body     LONGBLOB,
    request_method  VARBINARY(255),
    request_target  MEDIUMBLOB,
    request_headers MEDIUMBLOB,
    request_body    LONGBLOB,
    request_proof   MEDIUMBLOB,
    -- Bodies that will age, ids that are only labels, and what is owed to whom in which order: what other databases have a
    -- partial index for. An index that began with a column of the key could be taken to find a receipt by its key, and a
    -- handler's transaction would then lock the gaps beside it.
    ageing          BIGINT GENERATED ALWAYS AS
        (CASE WHEN state IN ('succeeded', 'failed') AND result_body IS NOT NULL THEN updated END) STORED,
    label           VARBINARY(255) GENERATED ALWAYS AS
        (CASE WHEN event_id <> `key` THEN event_id END) STORED,
    owed_to         VARBINARY(255) GENERATED ALWAYS AS
        (CASE WHEN due IS NOT NULL THEN consumer END) STORED,
    owed_order      VARBINARY(255) GENERATED ALWAYS AS
        (CASE WHEN due IS NOT NULL THEN ordering_key END) STORED,
    -- The key stands first: it tells receipts apart at once, and finds one where its scope is not known.
    UNIQUE KEY countersign_inbox_key (`key`, source, consumer),
    -- For lists and for purge. What lists are filtered by stands at its end, so that a filter that fits few rows goes
    -- through the index and not through the rows.
    KEY countersign_inbox_state (state, updated, id, consumer, source),
    KEY countersign_inbox_result (ageing, id),
    KEY countersign_inbox_label (label),
    -- What belongs together. It never changes: an index cannot leave out here what belongs to nothing.
    KEY countersign_inbox_correlation (correlation_id),
    -- What is owed to a consumer, the longest due first.
    KEY countersign_inbox_due (owed_to, due, id),
    -- What is owed and has an order, the first one first.
    KEY countersign_inbox_order (owed_order, source, consumer, id),
    CONSTRAINT countersign_inbox_states
        CHECK (state IN ('received', 'processing', 'succeeded', 'failed', 'dead_letter')),
    CONSTRAINT countersign_inbox_token CHECK ((state = 'processing') = (token IS NOT NULL)),
    CONSTRAINT countersign_inbox_lease CHECK ((state = 'processing') = (lease_until IS NOT NULL)),
    CONSTRAINT countersign_inbox_reason CHECK ((state = 'dead_letter' OR quarantined) = (reason IS NOT NULL)),
    CONSTRAINT countersign_inbox_succeeded CHECK (state <> 'succeeded' OR result_status IS NOT NULL),
    CONSTRAINT countersign_inbox_received CHECK (state <> 'received' OR request_method IS NOT NULL),
    CONSTRAINT countersign_inbox_owed CHECK (state <> 'received' OR (due IS NULL) = quarantined),
    CONSTRAINT countersign_inbox_due CHECK (state IN ('received', 'processing', 'failed') OR due IS NULL),
    CONSTRAINT countersign_inbox_due_lease CHECK (state <> 'processing' OR due IS NULL OR due = lease_until),
    CONSTRAINT countersign_inbox_due_request CHECK (due IS NULL OR request_method IS NOT NULL),
    CONSTRAINT countersign_inbox_quarantined CHECK (state = 'received' OR NOT quarantined),
    CONSTRAINT countersign_inbox_status CHECK (result_status IS NULL OR result_status BETWEEN 100 AND 999),
    CONSTRAINT countersign_inbox_headers CHECK ((result_status IS NULL) = (result_headers IS NULL)),
    CONSTRAINT countersign_inbox_body CHECK (result_status IS NOT NULL OR result_body IS NULL),
    CONSTRAINT countersign_inbox_request CHECK ((request_method IS NULL) = (request_target IS NULL)
        AND (request_method IS NULL) = (request_headers IS NULL)
        AND (request_method IS NULL) = (request_body IS NULL)
        AND (request_method IS NULL) = (request_proof IS NULL))
) ENGINE = InnoDB;

-- The last failed runs of a receipt. Without a foreign key, which would lock the receipt: the store removes them with it.
CREATE TABLE IF NOT EXISTS countersign_inbox_failure (
    receipt BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    status  BIGINT,
    error   TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (receipt, seq)
) ENGINE = InnoDB;
