-- One row for each instance of a saga: where it stands. `body` is JSON that only the module `saga` reads.
CREATE TABLE countersign_saga (
    saga     text   COLLATE "C" NOT NULL,
    instance text   COLLATE "C" NOT NULL,
    -- How many events it has answered: what two that move it at once are told apart by.
    version  bigint NOT NULL CHECK (version > 0),
    -- NULL until it begins: what came before is deferred.
    step     text   COLLATE "C",
    body     text   NOT NULL,
    -- Times are microseconds since the Unix epoch, by the clock of the database.
    created  bigint NOT NULL,
    -- The last move: what lists of those that are stuck go by.
    moved    bigint NOT NULL,
    ended    bigint,
    PRIMARY KEY (saga, instance)
);

-- Those that go on, the one that has not moved for longest first.
CREATE INDEX countersign_saga_open ON countersign_saga (saga, moved) WHERE ended IS NULL;

-- For purge.
CREATE INDEX countersign_saga_ended ON countersign_saga (ended) WHERE ended IS NOT NULL;

-- Each event that an instance has answered, in order.
CREATE TABLE countersign_saga_step (
    saga       text   COLLATE "C" NOT NULL,
    instance   text   COLLATE "C" NOT NULL,
    number     bigint NOT NULL CHECK (number > 0),
    at         bigint NOT NULL,
    event_id   text   COLLATE "C" NOT NULL,
    event_type text   COLLATE "C" NOT NULL,
    answer     text   COLLATE "C" NOT NULL CHECK (answer IN ('moved', 'ignored', 'deferred', 'refused')),
    from_step  text   COLLATE "C",
    to_step    text   COLLATE "C",
    reason     text,
    -- What it sent: JSON.
    sent       text   NOT NULL,
    PRIMARY KEY (saga, instance, number)
);
