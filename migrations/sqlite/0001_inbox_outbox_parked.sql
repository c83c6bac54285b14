-- Times are microseconds since the Unix epoch, UTC, by the database's clock.

-- Who wrote an inbox row.
CREATE TABLE ackwright_writer (
    id              INTEGER PRIMARY KEY,
    consumer_group  TEXT NOT NULL,
    plugin          TEXT NOT NULL,
    digest          TEXT NOT NULL,
    UNIQUE (consumer_group, plugin, digest)
);

-- One row for each message that was handled; the key is a hash, so the table grows at its end while the
-- index of keys stays small.
CREATE TABLE ackwright_inbox (
    key         BLOB NOT NULL PRIMARY KEY,
    label       TEXT NOT NULL,
    body_hash   INTEGER NOT NULL,
    state       INTEGER NOT NULL,  -- 0 done, 1 failed, 2 waiting
    writer      INTEGER NOT NULL,
    created_at  INTEGER NOT NULL
);
CREATE INDEX ackwright_inbox_age ON ackwright_inbox (created_at) WHERE state = 0;

-- Messages to publish.
CREATE TABLE ackwright_outbox (
    position         INTEGER PRIMARY KEY AUTOINCREMENT,
    shard            INTEGER NOT NULL,
    id               BLOB NOT NULL,
    broker           TEXT NOT NULL,
    destination      TEXT NOT NULL,
    order_key        TEXT NOT NULL,
    content_type     TEXT,
    headers          TEXT NOT NULL,  -- JSON
    body             BLOB NOT NULL,
    attempts         INTEGER NOT NULL DEFAULT 0,
    created_at       INTEGER NOT NULL,
    next_attempt_at  INTEGER,
    reason           TEXT,
    state            INTEGER NOT NULL DEFAULT 0,  -- 0 pending, 1 refused, 2 parked, 3 sent
    sent_at          INTEGER
);
CREATE INDEX ackwright_outbox_pending ON ackwright_outbox (position) WHERE state < 2;
CREATE INDEX ackwright_outbox_refused ON ackwright_outbox (order_key, position) WHERE state = 1;
CREATE INDEX ackwright_outbox_parked ON ackwright_outbox (position) WHERE state = 2;
CREATE INDEX ackwright_outbox_sent ON ackwright_outbox (sent_at) WHERE state = 3;

-- Which relay works on which shard of the outbox.
CREATE TABLE ackwright_relay (
    shard  INTEGER PRIMARY KEY,
    owner  BLOB NOT NULL,
    until  INTEGER NOT NULL
);

-- Messages that are kept whole: for good (state 1) or until their next attempt (state 2).
CREATE TABLE ackwright_parked (
    key              BLOB NOT NULL PRIMARY KEY,
    label            TEXT NOT NULL,
    writer           INTEGER NOT NULL,
    route            TEXT NOT NULL,
    state            INTEGER NOT NULL,
    code             TEXT NOT NULL,
    reason           TEXT NOT NULL,
    detail           TEXT,
    attempts         INTEGER NOT NULL,
    deliveries       INTEGER NOT NULL DEFAULT 1,
    envelope         TEXT NOT NULL,  -- JSON
    body             BLOB,
    first_seen_at    INTEGER NOT NULL,
    last_attempt_at  INTEGER NOT NULL,
    next_attempt_at  INTEGER,
    lease            BLOB,
    lease_until      INTEGER
);
CREATE INDEX ackwright_parked_due ON ackwright_parked (route, next_attempt_at) WHERE state = 2;
