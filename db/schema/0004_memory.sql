-- Long-term memory: what is remembered of people, groups, projects and agents,
-- where each piece comes from, and what it influenced (LTM, POL, ISO, ERASE).

-- +goose Up

-- Vectors, and constraints that hold intervals apart.
CREATE EXTENSION IF NOT EXISTS vector;
CREATE EXTENSION IF NOT EXISTS btree_gist;

-- A conversation belongs to one group and project, or to none, for good.
ALTER TABLE conversation
    ADD COLUMN group_id text NOT NULL DEFAULT '',
    ADD COLUMN project_id text NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN memory jsonb;

-- Who takes part in a group or project. Once removed, a participant sees nothing
-- of it any more.
CREATE TABLE memory_participant (
    tenant     text NOT NULL CHECK (tenant <> ''),
    kind       text NOT NULL CHECK (kind IN ('group', 'project')),
    id         text NOT NULL CHECK (id <> ''),
    user_id    text NOT NULL CHECK (user_id <> ''),
    added_by   text NOT NULL CHECK (added_by <> ''),
    added_at   timestamptz NOT NULL DEFAULT now(),
    removed_by text NOT NULL DEFAULT '',
    removed_at timestamptz,
    PRIMARY KEY (tenant, kind, id, user_id)
);

-- The tenants that have memory, for the work on all of them. No tenant data.
CREATE TABLE memory_tenant (name text PRIMARY KEY CHECK (name <> ''));

-- A request to forget or erase. An erased subject is never remembered again, and
-- what is found of it is residue. receipt counts what was erased.
CREATE TABLE memory_erasure (
    tenant       text NOT NULL CHECK (tenant <> ''),
    id           text NOT NULL CHECK (id <> ''),
    kind         text NOT NULL CHECK (kind IN ('record', 'memory', 'subject')),
    user_id      text NOT NULL CHECK (user_id <> ''),
    record_id    text NOT NULL DEFAULT '',
    requested_by text NOT NULL CHECK (requested_by <> ''),
    requested_at timestamptz NOT NULL DEFAULT now(),
    completed_at timestamptz,
    receipt      jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (tenant, id),
    CONSTRAINT memory_erasure_record_check CHECK ((kind = 'record') = (record_id <> ''))
);

CREATE INDEX memory_erasure_user_idx ON memory_erasure (tenant, user_id, kind);

-- Ends the transaction with a code: FL004 what was asked for is not there for
-- the user, FL005 the subject was erased, FL006 what was deleted does not come
-- back, 40001 somebody else was faster.
-- +goose StatementBegin
CREATE FUNCTION memory_refuse(code text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = 'refused by the rules of memory';
END
$$;
-- +goose StatementEnd

-- What row-level security lets the transaction see: the rooms of its run, of
-- groups and projects those in which app.user takes part, of conversations those
-- of app.user. A room is environment, scope kind and scope ID; in a group, or in a
-- conversation of one, nothing personal is seen, and by a user who was erased nothing at all. Each table of a
-- query calls it once; PL/pgSQL keeps its plan, which SQL makes anew each time.
-- +goose StatementBegin
CREATE FUNCTION memory_rooms() RETURNS text[] LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT coalesce(array_agg(coalesce(current_setting('app.environment', true), '') || '/' || s.kind || '/' || s.id), '{}')
        FROM (VALUES ('user', coalesce(current_setting('app.user', true), '')),
                     ('conversation', coalesce(current_setting('app.conversation', true), '')),
                     ('group', coalesce(current_setting('app.group', true), '')),
                     ('project', coalesce(current_setting('app.project', true), '')),
                     ('agent_role', coalesce(current_setting('app.agent', true), ''))) AS s (kind, id)
        WHERE s.id <> ''
          AND NOT EXISTS (
                SELECT FROM memory_erasure e
                WHERE e.tenant = current_setting('app.tenant', true) AND e.user_id = current_setting('app.user', true) AND e.kind = 'subject')
          AND (s.kind NOT IN ('user', 'conversation') OR (coalesce(current_setting('app.group', true), '') = '' AND NOT EXISTS (
                SELECT FROM conversation c
                WHERE c.tenant = current_setting('app.tenant', true) AND c.id = current_setting('app.conversation', true) AND c.group_id <> '')))
          AND (s.kind <> 'conversation' OR EXISTS (
                SELECT FROM conversation c
                WHERE c.tenant = current_setting('app.tenant', true) AND c.id = s.id
                  AND c.user_id = current_setting('app.user', true) AND c.environment = current_setting('app.environment', true)))
          AND (s.kind NOT IN ('group', 'project') OR EXISTS (
                SELECT FROM memory_participant p
                WHERE p.tenant = current_setting('app.tenant', true) AND p.kind = s.kind AND p.id = s.id
                  AND p.user_id = current_setting('app.user', true) AND p.removed_at IS NULL)));
END
$$;
-- +goose StatementEnd

-- A proposed memory. Content is kept while somebody has to decide about it, and
-- never if the policy refuses it. subject is whose keys seal it, room where it
-- is to be seen.
CREATE TABLE memory_candidate (
    tenant          text NOT NULL CHECK (tenant <> ''),
    id              text NOT NULL CHECK (id <> ''),
    room            text NOT NULL,
    subject         text NOT NULL CHECK (subject <> ''),
    user_id         text NOT NULL CHECK (user_id <> ''),
    environment     text NOT NULL CHECK (environment <> ''),
    conversation_id text NOT NULL DEFAULT '',
    group_id        text NOT NULL DEFAULT '',
    project_id      text NOT NULL DEFAULT '',
    agent           text NOT NULL DEFAULT '',
    run_id          text NOT NULL DEFAULT '',
    kind            text NOT NULL,
    key             text NOT NULL,
    source_type     text NOT NULL,
    source_id       text NOT NULL,
    writer          text NOT NULL,
    -- The candidate as JSON.
    content         bytea,
    -- Keyed: of the whole proposal, and of the normalized value.
    request_hash    text NOT NULL,
    value_hash      text NOT NULL DEFAULT '',
    state           text NOT NULL CHECK (state IN ('proposed', 'waiting_review', 'waiting_confirmation', 'stored', 'merged', 'rejected', 'declined', 'expired')),
    rules           jsonb NOT NULL DEFAULT '[]',
    policy_version  text NOT NULL DEFAULT '',
    policy_digest   text NOT NULL DEFAULT '',
    -- Of the waiting one: revision and nonce that a token is bound to, and until
    -- when somebody may decide.
    revision        integer NOT NULL DEFAULT 0,
    nonce           text NOT NULL DEFAULT '',
    plan_hash       text NOT NULL DEFAULT '',
    expires_at      timestamptz,
    record_id       text,
    record_version  integer,
    decided_by      text NOT NULL DEFAULT '',
    token_id        text NOT NULL DEFAULT '',
    tries           integer NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id),
    CONSTRAINT memory_candidate_content_check CHECK (
        content IS NULL OR state IN ('proposed', 'waiting_review', 'waiting_confirmation')),
    -- The hash of a plan is not keyed: with the nonce a value could be guessed by it.
    CONSTRAINT memory_candidate_plan_check CHECK (
        (plan_hash = '' AND nonce = '') OR state IN ('proposed', 'waiting_review', 'waiting_confirmation')),
    CONSTRAINT memory_candidate_wait_check CHECK (state NOT IN ('waiting_review', 'waiting_confirmation') OR expires_at IS NOT NULL)
);

-- What was decided stays decided, and its content gone.
-- +goose StatementBegin
CREATE FUNCTION memory_candidate_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM memory_refuse('FL006');
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER memory_candidate_final BEFORE UPDATE ON memory_candidate FOR EACH ROW
    WHEN (OLD.state IN ('stored', 'merged', 'rejected', 'declined', 'expired') AND NEW.state <> OLD.state)
    EXECUTE FUNCTION memory_candidate_refuse_change();

-- Indexes beside a primary key do not begin with the tenant: a plan that is made
-- while the tables are new could take any of them for a row that has a key.
CREATE INDEX memory_candidate_open_idx ON memory_candidate (tenant, updated_at) WHERE state IN ('proposed', 'waiting_review', 'waiting_confirmation');
CREATE INDEX memory_candidate_state_idx ON memory_candidate (state, tenant, created_at, id);
CREATE INDEX memory_candidate_run_idx ON memory_candidate (run_id, tenant) WHERE run_id <> '';
CREATE INDEX memory_candidate_user_idx ON memory_candidate (user_id, tenant, created_at);
CREATE INDEX memory_candidate_subject_idx ON memory_candidate (subject, tenant);
CREATE INDEX memory_candidate_record_idx ON memory_candidate (record_id, tenant) WHERE record_id IS NOT NULL;

-- One version of one record. Only what is in force is recalled; a deleted one is
-- a tombstone without content. identity tells records of one key apart.
CREATE TABLE memory_record (
    tenant          text NOT NULL CHECK (tenant <> ''),
    id              text NOT NULL CHECK (id <> ''),
    version         integer NOT NULL CHECK (version > 0),
    room            text NOT NULL,
    scope_kind      text NOT NULL CHECK (scope_kind IN ('user', 'conversation', 'group', 'agent_role', 'project')),
    scope_id        text NOT NULL CHECK (scope_id <> ''),
    subject         text NOT NULL CHECK (subject <> ''),
    -- Who it comes from, whose right it is to have it erased.
    user_id         text NOT NULL CHECK (user_id <> ''),
    environment     text NOT NULL CHECK (environment <> ''),
    agent           text NOT NULL,
    kind            text NOT NULL CHECK (kind IN ('profile_preference', 'validated_fact', 'ongoing_task', 'session_summary', 'operating_experience')),
    key             text NOT NULL CHECK (key <> ''),
    identity_hash   text NOT NULL,
    status          text NOT NULL CHECK (status IN ('active', 'superseded', 'retracted', 'expired', 'deleted')),
    -- The value, and the evidence and purpose as JSON.
    value           bytea,
    evidence        bytea,
    value_hash      text NOT NULL,
    source_type     text NOT NULL CHECK (source_type <> ''),
    source_id       text NOT NULL CHECK (source_id <> ''),
    writer          text NOT NULL CHECK (writer <> ''),
    run_id          text NOT NULL DEFAULT '',
    conversation_id text NOT NULL DEFAULT '',
    candidate_id    text NOT NULL CHECK (candidate_id <> ''),
    confidence      double precision NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    validation      text NOT NULL CHECK (validation IN ('unvalidated', 'user_stated', 'trusted', 'reviewed', 'user_confirmed')),
    consent_basis   text NOT NULL CHECK (consent_basis <> ''),
    sensitivity     text NOT NULL CHECK (sensitivity <> ''),
    valid_from      timestamptz,
    valid_until     timestamptz,
    expires_at      timestamptz,
    written_at      timestamptz NOT NULL,
    repeats         integer NOT NULL DEFAULT 0 CHECK (repeats >= 0),
    repeated_at     timestamptz,
    rules           jsonb NOT NULL,
    policy_version  text NOT NULL,
    policy_digest   text NOT NULL,
    decided_by      text NOT NULL DEFAULT '',
    ended_at        timestamptz,
    ended_by        text NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, id, version),
    -- Of a tombstone the hashes are gone as well: whoever has keys could guess.
    CONSTRAINT memory_record_content_check CHECK (
        CASE status WHEN 'deleted' THEN value IS NULL AND evidence IS NULL AND value_hash = '' AND identity_hash = ''
             ELSE value IS NOT NULL AND evidence IS NOT NULL AND value_hash ~ '^[0-9a-f]{64}$' AND identity_hash ~ '^[0-9a-f]{64}$' END),
    CONSTRAINT memory_record_end_check CHECK ((ended_at IS NULL) = (status = 'active')),
    CONSTRAINT memory_record_valid_check CHECK (valid_until > valid_from),
    -- Never two in force under one key at one time.
    CONSTRAINT memory_record_in_force_excl EXCLUDE USING gist (
        tenant WITH =, room WITH =, key WITH =, identity_hash WITH =, tstzrange(valid_from, valid_until) WITH &&) WHERE (status = 'active')
);

-- A tombstone stays one.
-- +goose StatementBegin
CREATE FUNCTION memory_record_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM memory_refuse('FL006');
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER memory_record_tombstone BEFORE UPDATE ON memory_record FOR EACH ROW
    WHEN (OLD.status = 'deleted' AND (NEW.status <> 'deleted' OR NEW.value IS NOT NULL OR NEW.evidence IS NOT NULL))
    EXECUTE FUNCTION memory_record_refuse_change();

CREATE UNIQUE INDEX memory_record_active_idx ON memory_record (tenant, id) WHERE status = 'active';
CREATE INDEX memory_record_key_idx ON memory_record (room, tenant, key, identity_hash);
-- For recall by key, the newest first.
CREATE INDEX memory_record_recall_idx ON memory_record (tenant, room, key, written_at DESC, id) WHERE status = 'active';
CREATE INDEX memory_record_subject_idx ON memory_record (subject, tenant, id);
CREATE INDEX memory_record_user_idx ON memory_record (user_id, tenant, id);
CREATE INDEX memory_record_expiry_idx ON memory_record (tenant, expires_at) WHERE status <> 'deleted' AND expires_at IS NOT NULL;
CREATE INDEX memory_record_candidate_idx ON memory_record (candidate_id, tenant);

-- Whether a version is recalled at a moment. The planner puts the condition in the
-- place of the call. That it is active is asked as memory_record_end_check has it:
-- asked by status, the planner would take an index of all that is active for a
-- lookup by ID while the table is new.
CREATE FUNCTION memory_in_force(r memory_record, at timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT r.ended_at IS NULL AND (r.valid_from IS NULL OR r.valid_from <= at) AND (r.valid_until IS NULL OR r.valid_until > at)
       AND (r.expires_at IS NULL OR r.expires_at > at)
$$;

-- What keyword recall looks through: keyed hashes of the words of a record in
-- force, of which there is at most one row.
CREATE TABLE memory_keyword (
    tenant    text NOT NULL CHECK (tenant <> ''),
    record_id text NOT NULL,
    version   integer NOT NULL,
    room      text NOT NULL,
    subject   text NOT NULL,
    tokens    bigint[] NOT NULL,
    -- A short name of the row, in which order they came.
    doc       bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (tenant, record_id)
);

CREATE UNIQUE INDEX memory_keyword_doc_idx ON memory_keyword (doc);

-- The index of memory_keyword by word; triggers keep it. A GIN index of the array
-- would never be used: row-level security comes before every condition that is
-- not leakproof, and && is not.
CREATE TABLE memory_word (
    tenant text NOT NULL,
    room   text NOT NULL,
    token  bigint NOT NULL,
    doc    bigint NOT NULL,
    PRIMARY KEY (tenant, room, token, doc)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

-- It sees the tenant, so that words go with whoever may delete their record. The
-- setting is put back by hand: only a superuser may attach one of no extension to
-- a function.
-- +goose StatementBegin
CREATE FUNCTION memory_keyword_words() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before text := coalesce(current_setting('app.memory', true), '');
BEGIN
    PERFORM set_config('app.memory', 'tenant', true);
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM memory_word w WHERE w.tenant = OLD.tenant AND w.room = OLD.room AND w.token = ANY (OLD.tokens) AND w.doc = OLD.doc;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO memory_word (tenant, room, token, doc)
        SELECT DISTINCT NEW.tenant, NEW.room, t.token, NEW.doc FROM unnest(NEW.tokens) AS t (token);
    END IF;
    PERFORM set_config('app.memory', before, true);
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER memory_keyword_words AFTER INSERT OR DELETE OR UPDATE OF tenant, room, tokens ON memory_keyword
    FOR EACH ROW EXECUTE FUNCTION memory_keyword_words();

-- The embedders whose vectors there are: serving answers recalls, building is
-- computed in the background. Name and dimension identify one. The deployment's.
CREATE TABLE memory_embedder (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL CHECK (name <> ''),
    dimensions integer NOT NULL CHECK (dimensions BETWEEN 1 AND 4000),
    status     text NOT NULL CHECK (status IN ('serving', 'building', 'retired')),
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (name, dimensions)
);

CREATE UNIQUE INDEX memory_embedder_serving_idx ON memory_embedder (status) WHERE status = 'serving';

-- What vector recall looks through. shared: of a scope that many people fill, whose
-- vectors have a sketch, a short likeness of each: see internal/recall.
CREATE TABLE memory_vector (
    tenant      text NOT NULL CHECK (tenant <> ''),
    record_id   text NOT NULL,
    embedder_id integer NOT NULL REFERENCES memory_embedder (id),
    version     integer NOT NULL,
    room        text NOT NULL,
    subject     text NOT NULL,
    dimensions  integer NOT NULL,
    shared      boolean NOT NULL,
    sketch      bit(1024),
    embedding   halfvec NOT NULL,
    PRIMARY KEY (tenant, record_id, embedder_id),
    CONSTRAINT memory_vector_sketch_check CHECK (shared = (sketch IS NOT NULL)),
    -- A vector without a direction is as near to everything as to nothing.
    CONSTRAINT memory_vector_embedding_check CHECK (vector_dims(embedding) = dimensions AND l2_norm(embedding) > 0)
) WITH (toast_tuple_target = 8160, -- A vector in its row is read four times as fast as one that lies apart.
        autovacuum_vacuum_insert_scale_factor = 0.05); -- What is visible to all is read from an index alone.

-- The vectors of a personal scope lie side by side in here, those of many
-- dimensions excepted: with the longest names they would not fit. Going from the
-- index to each row takes three times as long as comparing it.
CREATE INDEX memory_vector_own_idx ON memory_vector (tenant, room, embedder_id) INCLUDE (record_id, version, subject, embedding)
    WHERE NOT shared AND dimensions <= 768;
CREATE INDEX memory_vector_wide_idx ON memory_vector (tenant, room, embedder_id) WHERE NOT shared AND dimensions > 768;
-- And the sketches of a scope that many people fill.
CREATE INDEX memory_vector_sketch_idx ON memory_vector (tenant, room, embedder_id) INCLUDE (record_id, subject, sketch) WHERE shared;

-- Which memories a run was given: the influence ledger (LTM-9). Append-only.
CREATE TABLE memory_influence (
    tenant    text NOT NULL CHECK (tenant <> ''),
    run_id    text NOT NULL,
    record_id text NOT NULL,
    version   integer NOT NULL,
    subject   text NOT NULL,
    user_id   text NOT NULL,
    rank      integer NOT NULL CHECK (rank > 0),
    -- How it was found: exact, keyword, vector, joined by +.
    via       text NOT NULL,
    at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, run_id, record_id),
    CONSTRAINT memory_influence_run_fkey FOREIGN KEY (tenant, run_id) REFERENCES run (tenant, id)
);

CREATE INDEX memory_influence_record_idx ON memory_influence (tenant, record_id, at);

-- Who did what to memory; append-only and without content.
CREATE TABLE memory_audit (
    tenant       text NOT NULL CHECK (tenant <> ''),
    id           bigint GENERATED ALWAYS AS IDENTITY,
    at           timestamptz NOT NULL DEFAULT now(),
    actor        text NOT NULL CHECK (actor <> ''),
    action       text NOT NULL CHECK (action <> ''),
    subject      text NOT NULL,
    user_id      text NOT NULL,
    candidate_id text NOT NULL DEFAULT '',
    record_id    text NOT NULL DEFAULT '',
    version      integer NOT NULL DEFAULT 0,
    -- A short stable code or rule IDs.
    detail       text NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, id)
);

CREATE INDEX memory_audit_record_idx ON memory_audit (tenant, record_id, id) WHERE record_id <> '';
CREATE INDEX memory_audit_candidate_idx ON memory_audit (tenant, candidate_id, id) WHERE candidate_id <> '';
CREATE INDEX memory_audit_user_idx ON memory_audit (tenant, user_id, id);

-- A run that can be learned from. A lesson that is due is tried until it is done.
CREATE TABLE memory_lesson (
    tenant     text NOT NULL CHECK (tenant <> ''),
    run_id     text NOT NULL,
    user_id    text NOT NULL,
    status     text NOT NULL CHECK (status IN ('due', 'done', 'failed')),
    failure    text NOT NULL DEFAULT '',
    tries      integer NOT NULL DEFAULT 0,
    billed_tokens      bigint NOT NULL DEFAULT 0 CHECK (billed_tokens >= 0),
    billed_cost_micros bigint CHECK (billed_cost_micros >= 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, run_id),
    CONSTRAINT memory_lesson_run_fkey FOREIGN KEY (tenant, run_id) REFERENCES run (tenant, id)
);

CREATE INDEX memory_lesson_due_idx ON memory_lesson (tenant, updated_at) WHERE status = 'due';

-- Content is sealed, as everywhere.
-- +goose StatementBegin
DO $$
DECLARE
    content text[];
BEGIN
    FOREACH content SLICE 1 IN ARRAY ARRAY[['memory_candidate', 'content'], ['memory_record', 'value'], ['memory_record', 'evidence']]
    LOOP
        EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I CHECK (octet_length(%I) > 0 AND substring(%I FROM 1 FOR 1) = ''\x01'')',
                       content[1], content[1] || '_' || content[2] || '_sealed', content[2], content[2]);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Rows of one user's own, or of the tenant's where app.memory is set to tenant: that
-- is for reviewers, operators and the work in the background. Only there is it said
-- who takes part in what, and who is erased: what others see goes by it. The audit
-- trail is written by everybody.
-- +goose StatementBegin
DO $$
DECLARE
    name   text;
    ours   text := '(SELECT coalesce(current_setting(''app.memory'', true), '''') = ''tenant'')';
    own    text := '%I IN ((SELECT nullif(current_setting(''app.user'', true), '''')), (SELECT nullif(current_setting(''app.memory_subject'', true), '''')))';
    seen   text;
    change text;
BEGIN
    FOREACH name IN ARRAY ARRAY['memory_participant', 'memory_influence', 'memory_audit', 'memory_lesson', 'memory_erasure']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        seen := format(own, 'user_id') || ' OR ' || ours || CASE name WHEN 'memory_audit' THEN ' OR ' || format(own, 'subject') ELSE '' END;
        change := CASE WHEN name IN ('memory_participant', 'memory_erasure') THEN ours WHEN name = 'memory_audit' THEN 'true' ELSE seen END;
        EXECUTE format('CREATE POLICY memory_isolation ON %I USING (tenant = (SELECT current_setting(''app.tenant'', true)) AND (%s))
                        WITH CHECK (tenant = (SELECT current_setting(''app.tenant'', true)) AND (%s))', name, seen, change);
    END LOOP;
    -- Memory itself: the rooms of a run; of a person who asks what is remembered,
    -- what comes from or belongs to that person; or the tenant's for background
    -- work. The functions are called once for a query, not for each row.
    FOREACH name IN ARRAY ARRAY['memory_candidate', 'memory_record', 'memory_keyword', 'memory_vector']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY memory_isolation ON %I USING (
                            tenant = (SELECT current_setting(''app.tenant'', true))
                            AND (room = ANY ((SELECT memory_rooms())::text[])
                                 OR subject = (SELECT nullif(current_setting(''app.memory_subject'', true), ''''))
                                 OR (SELECT coalesce(current_setting(''app.memory'', true), '''') = ''tenant'')))', name);
    END LOOP;
    -- And what comes from the person who asks.
    FOREACH name IN ARRAY ARRAY['memory_candidate', 'memory_record']
    LOOP
        EXECUTE format('CREATE POLICY memory_origin ON %I FOR SELECT USING (
                            tenant = (SELECT current_setting(''app.tenant'', true))
                            AND user_id = (SELECT nullif(current_setting(''app.memory_subject'', true), '''')))', name);
    END LOOP;
    CREATE POLICY memory_isolation ON memory_word USING (
        tenant = (SELECT current_setting('app.tenant', true))
        AND (room = ANY ((SELECT memory_rooms())::text[]) OR (SELECT coalesce(current_setting('app.memory', true), '') = 'tenant')));
    ALTER TABLE memory_word ENABLE ROW LEVEL SECURITY;
    ALTER TABLE memory_word FORCE ROW LEVEL SECURITY;
END
$$;
-- +goose StatementEnd

GRANT SELECT, INSERT, UPDATE ON memory_participant, memory_lesson, memory_candidate, memory_embedder TO fairlead_app;
GRANT SELECT, INSERT ON memory_tenant, memory_influence, memory_audit, memory_record, memory_erasure TO fairlead_app;
-- Where a record comes from is never rewritten, nor that somebody was erased.
GRANT UPDATE (status, value, evidence, value_hash, identity_hash, repeats, repeated_at, ended_at, ended_by) ON memory_record TO fairlead_app;
GRANT UPDATE (completed_at, receipt) ON memory_erasure TO fairlead_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON memory_keyword, memory_vector TO fairlead_app;
GRANT SELECT, INSERT, DELETE ON memory_word TO fairlead_app;

-- +goose Down

DROP FUNCTION memory_in_force;
DROP TABLE memory_lesson, memory_audit, memory_influence, memory_vector, memory_embedder, memory_word, memory_keyword, memory_record,
    memory_candidate, memory_tenant;
DROP FUNCTION memory_keyword_words, memory_rooms, memory_record_refuse_change, memory_candidate_refuse_change, memory_refuse;
DROP TABLE memory_participant, memory_erasure;
-- The extensions stay: others may use them.
ALTER TABLE run DROP COLUMN memory;
ALTER TABLE conversation DROP COLUMN group_id, DROP COLUMN project_id;
