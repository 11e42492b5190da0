-- What a conversation keeps: branches, what was settled, summaries, snapshots;
-- and its content encrypted (CONV-1..6).

-- +goose Up

-- The keys of a subject, a user of a tenant, wrapped by a key-encryption key.
-- data seals values: its newest key seals, older ones still open. hash makes
-- keyed hashes. A destroyed key has neither and never comes back.
CREATE TABLE subject_key (
    tenant       text NOT NULL CHECK (tenant <> ''),
    subject      text NOT NULL CHECK (subject <> ''),
    version      integer NOT NULL DEFAULT 1 CHECK (version > 0),
    data         bytea,
    hash         bytea,
    created_at   timestamptz NOT NULL DEFAULT now(),
    rotated_at   timestamptz,
    destroyed_at timestamptz,
    destroyed_by text NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, subject),
    CONSTRAINT subject_key_destroyed_check CHECK (
        CASE WHEN destroyed_at IS NULL THEN data IS NOT NULL AND hash IS NOT NULL AND destroyed_by = ''
             ELSE data IS NULL AND hash IS NULL AND destroyed_by <> '' END)
);

-- +goose StatementBegin
CREATE FUNCTION subject_key_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'FL003', MESSAGE = 'keys that were destroyed do not come back';
END
$$;
-- +goose StatementEnd

CREATE TRIGGER subject_key_destroyed BEFORE UPDATE ON subject_key FOR EACH ROW
    WHEN (OLD.destroyed_at IS NOT NULL) EXECUTE FUNCTION subject_key_refuse_change();

-- The deployment's own keys, for what belongs to no subject: one row.
CREATE TABLE deployment_key (
    id         boolean PRIMARY KEY DEFAULT true CHECK (id),
    version    integer NOT NULL DEFAULT 1 CHECK (version > 0),
    data       bytea NOT NULL,
    hash       bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    rotated_at timestamptz
);

-- Raises FL003: the keys that a program has in memory are not the subject's any
-- more.
-- +goose StatementBegin
CREATE FUNCTION keys_changed() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'FL003', MESSAGE = 'the subject''s keys have changed';
END
$$;
-- +goose StatementEnd

-- Content is sealed from here on: a value begins with 0x01. What an earlier
-- version stored is marked by 0x00 until it is sealed.
ALTER TABLE message ALTER COLUMN content TYPE bytea USING '\x00'::bytea || convert_to(content, 'UTF8');
ALTER TABLE model_attempt ALTER COLUMN response TYPE bytea USING '\x00'::bytea || convert_to(response::text, 'UTF8');
ALTER TABLE tool_call ALTER COLUMN arguments TYPE bytea USING '\x00'::bytea || convert_to(arguments, 'UTF8'),
                      ALTER COLUMN envelope TYPE bytea USING '\x00'::bytea || convert_to(envelope, 'UTF8');
ALTER TABLE tool_result ALTER COLUMN content TYPE bytea USING '\x00'::bytea || content;
ALTER TABLE write_plan DROP CONSTRAINT write_plan_summary_check;
ALTER TABLE write_plan ALTER COLUMN summary TYPE bytea USING '\x00'::bytea || convert_to(summary, 'UTF8');
ALTER TABLE write_plan ADD CONSTRAINT write_plan_summary_check CHECK (octet_length(summary) > 0);
ALTER TABLE write_intent ALTER COLUMN settled_note DROP DEFAULT, ALTER COLUMN settled_note DROP NOT NULL;
ALTER TABLE write_intent ALTER COLUMN settled_note TYPE bytea USING '\x00'::bytea || convert_to(nullif(settled_note, ''), 'UTF8');

-- A hash of the request, the user's message included, is keyed from here on. What
-- an earlier version stored says so until it is.
ALTER TABLE run DROP CONSTRAINT run_request_hash_check;
ALTER TABLE run ALTER COLUMN request_hash TYPE text USING 'plain:' || request_hash;
ALTER TABLE run ADD CONSTRAINT run_request_hash_check CHECK (request_hash ~ '^(plain:)?[0-9a-f]{64}$');

-- The tables with values that an earlier version stored in the clear, each until
-- all of them are sealed.
CREATE TABLE unsealed (name text PRIMARY KEY);
INSERT INTO unsealed (name)
VALUES ('message'), ('model_attempt'), ('tool_call'), ('tool_result'), ('write_plan'), ('write_intent'), ('run');

-- branch is the line of messages that the conversation is on; entries counts
-- what was settled in it. A message belongs to the line on which it was written.
ALTER TABLE conversation
    ADD COLUMN branch integer NOT NULL DEFAULT 0 CHECK (branch >= 0),
    ADD COLUMN entries bigint NOT NULL DEFAULT 0 CHECK (entries >= 0);
ALTER TABLE message ADD COLUMN branch integer NOT NULL DEFAULT 0 CHECK (branch >= 0);

-- A line that a rollback began. path are the lines it consists of, itself last:
-- of each the messages up to until and the session entries up to entries. Line 0
-- has no row: it is what was there before the first rollback, all of it.
CREATE TABLE conversation_branch (
    tenant          text NOT NULL CHECK (tenant <> ''),
    conversation_id text NOT NULL,
    branch          integer NOT NULL CHECK (branch > 0),
    path            integer[] NOT NULL,
    until           bigint[] NOT NULL,
    entries         bigint[] NOT NULL,
    snapshot        integer NOT NULL,
    created_by      text NOT NULL CHECK (created_by <> ''),
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, conversation_id, branch),
    CONSTRAINT conversation_branch_conversation_fkey FOREIGN KEY (tenant, conversation_id) REFERENCES conversation (tenant, id),
    CONSTRAINT conversation_branch_path_check CHECK (
        cardinality(path) > 1 AND cardinality(path) = cardinality(until) AND cardinality(path) = cardinality(entries)
        AND path[cardinality(path)] = branch)
);

-- A point that a conversation can go back to: the messages of a line up to seq
-- and its session entries up to entries. safety: a rollback made it.
CREATE TABLE conversation_snapshot (
    tenant          text NOT NULL CHECK (tenant <> ''),
    conversation_id text NOT NULL,
    number          integer NOT NULL CHECK (number > 0),
    branch          integer NOT NULL CHECK (branch >= 0),
    seq             bigint NOT NULL CHECK (seq >= 0),
    entries         bigint NOT NULL CHECK (entries >= 0),
    label           text NOT NULL DEFAULT '',
    safety          boolean NOT NULL,
    created_by      text NOT NULL CHECK (created_by <> ''),
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, conversation_id, number),
    CONSTRAINT conversation_snapshot_conversation_fkey FOREIGN KEY (tenant, conversation_id) REFERENCES conversation (tenant, id)
);

ALTER TABLE conversation_branch ADD CONSTRAINT conversation_branch_snapshot_fkey
    FOREIGN KEY (tenant, conversation_id, snapshot) REFERENCES conversation_snapshot (tenant, conversation_id, number);

-- What was settled in a conversation; append-only. version orders the entries.
-- An entry may come before the run that it belongs to is stored.
CREATE TABLE session_entry (
    tenant          text NOT NULL CHECK (tenant <> ''),
    conversation_id text NOT NULL,
    version         bigint NOT NULL CHECK (version > 0),
    kind            text NOT NULL CHECK (kind IN ('fact', 'prohibition', 'lift')),
    key             text NOT NULL CHECK (key <> ''),
    value           bytea,
    tools           text[] NOT NULL DEFAULT '{}',
    ask             boolean NOT NULL DEFAULT false,
    message_id      text NOT NULL DEFAULT '',
    run_id          text NOT NULL,
    call_id         text NOT NULL DEFAULT '',
    tool            text NOT NULL DEFAULT '',
    tool_version    text NOT NULL DEFAULT '',
    branch          integer NOT NULL CHECK (branch >= 0),
    seq             bigint NOT NULL CHECK (seq >= 0),
    -- The call's place in its run; what the user said comes before all calls.
    place           integer[] GENERATED ALWAYS AS (string_to_array(call_id, '.')::integer[]) STORED,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, conversation_id, version),
    CONSTRAINT session_entry_source_key UNIQUE (tenant, conversation_id, run_id, call_id, kind, key),
    CONSTRAINT session_entry_conversation_fkey FOREIGN KEY (tenant, conversation_id) REFERENCES conversation (tenant, id)
);

CREATE INDEX session_entry_fact_idx ON session_entry (tenant, conversation_id, key, seq DESC, place DESC, version DESC) INCLUDE (branch)
    WHERE kind = 'fact';
CREATE INDEX session_entry_prohibition_idx ON session_entry (tenant, conversation_id, version) WHERE kind <> 'fact';

-- A lossy derivative of the messages from_seq to to_seq of a line; append-only.
-- It is good on the lines that have all of them. Only a checked one is ever used.
CREATE TABLE conversation_summary (
    tenant             text NOT NULL CHECK (tenant <> ''),
    id                 bigint GENERATED ALWAYS AS IDENTITY,
    conversation_id    text NOT NULL,
    branch             integer NOT NULL CHECK (branch >= 0),
    from_seq           bigint NOT NULL CHECK (from_seq > 0),
    to_seq             bigint NOT NULL,
    status             text NOT NULL CHECK (status IN ('checked', 'failed', 'skipped')),
    failure            text NOT NULL DEFAULT '',
    model              text NOT NULL,
    revision           text NOT NULL DEFAULT '',
    prompt_version     text NOT NULL,
    content            bytea,
    billed_tokens      bigint NOT NULL CHECK (billed_tokens >= 0),
    billed_cost_micros bigint CHECK (billed_cost_micros >= 0),
    created_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id),
    CONSTRAINT conversation_summary_conversation_fkey FOREIGN KEY (tenant, conversation_id) REFERENCES conversation (tenant, id),
    CONSTRAINT conversation_summary_range_check CHECK (to_seq >= from_seq),
    CONSTRAINT conversation_summary_content_check CHECK (
        CASE status WHEN 'checked' THEN content IS NOT NULL AND failure = '' WHEN 'failed' THEN content IS NULL WHEN 'skipped' THEN content IS NULL
             ELSE true END)
);

CREATE UNIQUE INDEX conversation_summary_checked_idx ON conversation_summary (tenant, conversation_id, branch, from_seq) WHERE status <> 'failed';
CREATE INDEX conversation_summary_failed_idx ON conversation_summary (tenant, conversation_id, from_seq) WHERE status = 'failed';

-- note is what the tool said about its result in one line. prompt counts what
-- went into a call and what was left out; it is no content.
ALTER TABLE tool_call ADD COLUMN note bytea;
ALTER TABLE model_attempt ADD COLUMN prompt jsonb;

-- A program of an earlier version, which knows nothing of all this, is refused
-- what it would store in the clear. 0x00 is left to what is not sealed yet.
-- +goose StatementBegin
DO $$
DECLARE
    content text[];
BEGIN
    FOREACH content SLICE 1 IN ARRAY ARRAY[
        ['message', 'content'], ['model_attempt', 'response'], ['tool_call', 'arguments'], ['tool_call', 'envelope'], ['tool_call', 'note'],
        ['tool_result', 'content'], ['write_plan', 'summary'], ['write_intent', 'settled_note'], ['session_entry', 'value'],
        ['conversation_summary', 'content']]
    LOOP
        EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I CHECK (octet_length(%I) > 0 AND substring(%I FROM 1 FOR 1) IN (''\x00'', ''\x01''))',
                       content[1], content[1] || '_' || content[2] || '_sealed', content[2], content[2]);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['subject_key', 'conversation_branch', 'conversation_snapshot', 'session_entry', 'conversation_summary']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant_isolation ON %I USING (tenant = current_setting(''app.tenant'', true))
                        WITH CHECK (tenant = current_setting(''app.tenant'', true))', name);
    END LOOP;
END
$$;
-- +goose StatementEnd

GRANT SELECT, INSERT, UPDATE ON subject_key, deployment_key TO fairlead_app;
GRANT SELECT, INSERT ON conversation_branch, conversation_snapshot, session_entry, conversation_summary TO fairlead_app;
-- To seal it under a newer key.
GRANT UPDATE (content) ON message TO fairlead_app;

-- +goose Down

-- What is sealed stays unreadable: the keys go.
REVOKE UPDATE (content) ON message FROM fairlead_app;
ALTER TABLE model_attempt DROP COLUMN prompt;
ALTER TABLE tool_call DROP COLUMN note;
DROP TABLE conversation_summary, session_entry, conversation_branch, conversation_snapshot, unsealed, deployment_key, subject_key;
DROP FUNCTION keys_changed, subject_key_refuse_change;
ALTER TABLE message DROP COLUMN branch;
ALTER TABLE conversation DROP COLUMN branch, DROP COLUMN entries;
ALTER TABLE run DROP CONSTRAINT run_request_hash_check;
ALTER TABLE run ALTER COLUMN request_hash TYPE text USING replace(request_hash, 'plain:', '');
ALTER TABLE run ADD CONSTRAINT run_request_hash_check CHECK (request_hash ~ '^[0-9a-f]{64}$');
ALTER TABLE message DROP CONSTRAINT message_content_sealed;
ALTER TABLE model_attempt DROP CONSTRAINT model_attempt_response_sealed;
ALTER TABLE tool_call DROP CONSTRAINT tool_call_arguments_sealed, DROP CONSTRAINT tool_call_envelope_sealed;
ALTER TABLE tool_result DROP CONSTRAINT tool_result_content_sealed;
ALTER TABLE write_plan DROP CONSTRAINT write_plan_summary_sealed;
ALTER TABLE write_intent DROP CONSTRAINT write_intent_settled_note_sealed;

-- +goose StatementBegin
CREATE FUNCTION unmark(value bytea, sealed text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN substring(value FROM 1 FOR 1) = '\x00' THEN convert_from(substring(value FROM 2), 'UTF8') WHEN value IS NOT NULL THEN sealed END
$$;
-- +goose StatementEnd

ALTER TABLE write_intent ALTER COLUMN settled_note TYPE text USING coalesce(unmark(settled_note, '(encrypted)'), '');
ALTER TABLE write_intent ALTER COLUMN settled_note SET DEFAULT '', ALTER COLUMN settled_note SET NOT NULL;
ALTER TABLE write_plan DROP CONSTRAINT write_plan_summary_check;
ALTER TABLE write_plan ALTER COLUMN summary TYPE text USING unmark(summary, '(encrypted)');
ALTER TABLE write_plan ADD CONSTRAINT write_plan_summary_check CHECK (summary <> '');
ALTER TABLE tool_result ALTER COLUMN content TYPE bytea
    USING CASE WHEN substring(content FROM 1 FOR 1) = '\x00' THEN substring(content FROM 2) ELSE '(encrypted)'::bytea END;
ALTER TABLE tool_call ALTER COLUMN arguments TYPE text USING unmark(arguments, '(encrypted)'),
                      ALTER COLUMN envelope TYPE text USING unmark(envelope, '(encrypted)');
ALTER TABLE model_attempt ALTER COLUMN response TYPE json USING unmark(response, NULL)::json;
ALTER TABLE message ALTER COLUMN content TYPE text USING unmark(content, '(encrypted)');
DROP FUNCTION unmark;
