-- One row for each instance of a saga: where it stands. `body` is JSON that only the module `saga` reads. What tells
-- instances apart is bytes.
--
-- Each statement may be run again: this database commits every one of them at once, so that a migration can be cut off
-- half-way, and is then repeated from its beginning.
CREATE TABLE IF NOT EXISTS countersign_saga (
    saga     VARBINARY(255) NOT NULL,
    instance VARBINARY(255) NOT NULL,
    -- How many events it has answered: what two that move it at once are told apart by.
    version  BIGINT NOT NULL,
    -- NULL until it begins: what came before is deferred.
    step     VARBINARY(255),
    body     LONGBLOB NOT NULL,
    -- Times are microseconds since the Unix epoch, by the clock of the database.
    created  BIGINT NOT NULL,
    -- The last move: what lists of those that are stuck go by.
    moved    BIGINT NOT NULL,
    ended    BIGINT,
    PRIMARY KEY (saga, instance),
    -- Those that go on, the one that has not moved for longest first.
    KEY countersign_saga_open (saga, ended, moved),
    -- For purge.
    KEY countersign_saga_ended (ended),
    CONSTRAINT countersign_saga_version CHECK (version > 0)
) ENGINE = InnoDB;

-- Each event that an instance has answered, in order.
CREATE TABLE IF NOT EXISTS countersign_saga_step (
    saga       VARBINARY(255) NOT NULL,
    instance   VARBINARY(255) NOT NULL,
    number     BIGINT NOT NULL,
    at         BIGINT NOT NULL,
    event_id   VARBINARY(255) NOT NULL,
    event_type VARBINARY(255) NOT NULL,
    answer     VARBINARY(16) NOT NULL,
    from_step  VARBINARY(255),
    to_step    VARBINARY(255),
    reason     BLOB,
    -- What it sent: JSON.
    sent       MEDIUMBLOB NOT NULL,
    PRIMARY KEY (saga, instance, number),
    CONSTRAINT countersign_saga_step_number CHECK (number > 0),
    CONSTRAINT countersign_saga_step_answers CHECK (answer IN ('moved', 'ignored', 'deferred', 'refused'))
) ENGINE = InnoDB;
