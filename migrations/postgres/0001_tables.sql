-- The host's own tables. Times are the database's clock, everywhere.

CREATE TABLE ackwright_writer (
    id             integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer_group text NOT NULL,
    plugin         text NOT NULL,
    digest         text NOT NULL,
    CONSTRAINT ackwright_writer_who UNIQUE (consumer_group, plugin, digest)
);

-- One row a message, inserted in its transaction and hardly ever read: every byte of it is paid for each message.
CREATE TABLE ackwright_inbox (
    key        uuid NOT NULL,
    body_hash  bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    writer     integer NOT NULL,
    state      smallint NOT NULL,   -- 0 done, 1 failed, 2 waiting
    label      text NOT NULL,
    CONSTRAINT ackwright_inbox_key PRIMARY KEY (key)
);

-- Rows come in order of time, so a few bytes a page range find the old ones; a b-tree would cost every insert.
CREATE INDEX ackwright_inbox_created_at ON ackwright_inbox
    USING brin (created_at) WITH (pages_per_range = 32, autosummarize = on);

CREATE TABLE ackwright_outbox (
    position        bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    id              uuid NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    next_attempt_at timestamptz,
    sent_at         timestamptz,
    attempts        integer NOT NULL DEFAULT 0,
    shard           smallint NOT NULL,
    state           smallint NOT NULL DEFAULT 0,   -- 0 pending, 1 refused, 2 parked, 3 sent
    broker          text NOT NULL,
    destination     text NOT NULL,
    order_key       text NOT NULL,
    content_type    text,
    headers         text NOT NULL,
    body            bytea NOT NULL,
    reason          text
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE INDEX ackwright_outbox_pending ON ackwright_outbox (broker, position) WHERE state < 2;
CREATE INDEX ackwright_outbox_refused ON ackwright_outbox (broker, shard, order_key, position) WHERE state = 1;
CREATE INDEX ackwright_outbox_parked ON ackwright_outbox (position) WHERE state = 2;
CREATE INDEX ackwright_outbox_sent ON ackwright_outbox (sent_at) WHERE state = 3;

CREATE TABLE ackwright_relay (
    shard smallint PRIMARY KEY,
    owner uuid,
    until timestamptz
);

INSERT INTO ackwright_relay (shard) SELECT shard FROM generate_series(0, 15) AS shard;

CREATE TABLE ackwright_parked (
    key             uuid NOT NULL,
    writer          integer NOT NULL REFERENCES ackwright_writer (id),
    state           smallint NOT NULL,   -- 1 parked, 2 waiting
    attempts        integer NOT NULL,
    deliveries      integer NOT NULL DEFAULT 1,
    first_seen_at   timestamptz NOT NULL DEFAULT now(),
    last_attempt_at timestamptz NOT NULL DEFAULT now(),
    next_attempt_at timestamptz,
    lease           uuid,
    lease_until     timestamptz,
    route           text NOT NULL,
    code            text NOT NULL,
    label           text NOT NULL,
    reason          text NOT NULL,
    detail          text,
    envelope        text NOT NULL,
    body            bytea,
    CONSTRAINT ackwright_parked_key PRIMARY KEY (key)
);

CREATE INDEX ackwright_parked_due ON ackwright_parked (route, next_attempt_at) WHERE state = 2;
CREATE INDEX ackwright_parked_seen ON ackwright_parked (last_attempt_at);
