-- One row for each instance of a saga: where it stands. `body` is JSON that only the module `saga` reads.
CREATE TABLE countersign_saga (
    saga     TEXT    NOT NULL,
    instance TEXT    NOT NULL,
    -- How many events it has answered: what two that move it at once are told apart by.
    version  INTEGER NOT NULL CHECK (version > 0),
    -- NULL until it begins: what came before is deferred.
    step     TEXT,
    body     TEXT    NOT NULL,
    -- Times are microseconds since the Unix epoch, by the clock of the store.
    created  INTEGER NOT NULL,
    -- The last move: what lists of those that are stuck go by.
    moved    INTEGER NOT NULL,
    ended    INTEGER,
    PRIMARY KEY (saga, instance)
) STRICT, WITHOUT ROWID;

-- Those that go on, the one that has not moved for longest first.
CREATE INDEX countersign_saga_open ON countersign_saga (saga, moved) WHERE ended IS NULL;

-- For purge.
CREATE INDEX countersign_saga_ended ON countersign_saga (ended) WHERE ended IS NOT NULL;

-- Each event that an instance has answered, in order.
CREATE TABLE countersign_saga_step (
    saga       TEXT    NOT NULL,
    instance   TEXT    NOT NULL,
    number     INTEGER NOT NULL CHECK (number > 0),
    at         INTEGER NOT NULL,
    event_id   TEXT    NOT NULL,
    event_type TEXT    NOT NULL,
    answer     TEXT    NOT NULL CHECK (answer IN ('moved', 'ignored', 'deferred', 'refused')),
    from_step  TEXT,
    to_step    TEXT,
    reason     TEXT,
    -- What it sent: JSON.
    sent       TEXT    NOT NULL,
    PRIMARY KEY (saga, instance, number)
) STRICT, WITHOUT ROWID;
