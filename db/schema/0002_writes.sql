-- Writes: what a person was shown and decided, what was done, and what was not
-- believed (WRITE-1..7).

-- +goose Up

-- A run that waits for a person does not use up its time: at the end of the wait
-- its deadline moves on by as long as it waited.
ALTER TABLE run ADD COLUMN waiting_since timestamptz;
ALTER TABLE run ADD CONSTRAINT run_waiting_check CHECK ((waiting_since IS NOT NULL) = (status = 'waiting_confirmation'));

-- unknown: the effect of the call may have happened, and nobody knows.
ALTER TABLE tool_call DROP CONSTRAINT tool_call_status_check;
ALTER TABLE tool_call ADD CONSTRAINT tool_call_status_check
    CHECK (status IN ('proposed', 'refused', 'running', 'succeeded', 'failed', 'abandoned', 'unknown'));

-- What a write is going to do, as a person sees it; the arguments are the
-- call's. hash covers all of it. A call whose resource changes gets a new
-- revision. token_id is the token that decided.
CREATE TABLE write_plan (
    tenant           text NOT NULL CHECK (tenant <> ''),
    run_id           text NOT NULL,
    call_id          text NOT NULL,
    revision         integer NOT NULL CHECK (revision > 0),
    tool             text NOT NULL CHECK (tool <> ''),
    tool_version     text NOT NULL CHECK (tool_version <> ''),
    arguments_hash   text NOT NULL CHECK (arguments_hash ~ '^[0-9a-f]{64}$'),
    resource         text NOT NULL CHECK (resource <> ''),
    resource_version text NOT NULL,
    summary          text NOT NULL CHECK (summary <> ''),
    hash             text NOT NULL CHECK (hash ~ '^[0-9a-f]{64}$'),
    nonce            text NOT NULL CHECK (nonce <> ''),
    policy_digest    text NOT NULL CHECK (policy_digest ~ '^[0-9a-f]{64}$'),
    status           text NOT NULL DEFAULT 'pending'
                     CHECK (status IN ('pending', 'approved', 'declined', 'expired', 'stale', 'refused', 'withdrawn')),
    created_at       timestamptz NOT NULL,
    expires_at       timestamptz NOT NULL,
    decided_by       text NOT NULL DEFAULT '',
    decided_at       timestamptz,
    token_id         text NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, run_id, call_id, revision),
    CONSTRAINT write_plan_call_fkey FOREIGN KEY (tenant, run_id, call_id) REFERENCES tool_call (tenant, run_id, call_id),
    CONSTRAINT write_plan_decided_check CHECK ((decided_at IS NULL) = (status = 'pending')),
    -- A plan that was confirmed and then found stale or refused keeps its approver.
    CONSTRAINT write_plan_decider_check CHECK (
        (decided_by <> '') = (token_id <> '')
        AND (decided_by <> '' OR status NOT IN ('approved', 'declined'))
        AND (decided_by = '' OR status IN ('approved', 'declined', 'stale', 'refused')))
);

-- One plan of a run waits at a time.
CREATE UNIQUE INDEX write_plan_pending_idx ON write_plan (tenant, run_id) WHERE status = 'pending';
CREATE INDEX write_plan_waiting_idx ON write_plan (tenant, created_at) WHERE status = 'pending';

-- The intent to have one effect, recorded in the transaction that consumes the
-- approval. key goes to the system that performs the write: it is the same for
-- every try. open: the outcome is not recorded yet.
CREATE TABLE write_intent (
    tenant         text NOT NULL CHECK (tenant <> ''),
    key            text NOT NULL CHECK (key ~ '^[0-9a-f]{64}$'),
    run_id         text NOT NULL,
    call_id        text NOT NULL,
    revision       integer NOT NULL,
    arguments_hash text NOT NULL CHECK (arguments_hash ~ '^[0-9a-f]{64}$'),
    approved_by    text NOT NULL CHECK (approved_by <> ''),
    policy_digest  text NOT NULL CHECK (policy_digest ~ '^[0-9a-f]{64}$'),
    outcome        text NOT NULL DEFAULT 'open' CHECK (outcome IN ('open', 'performed', 'not_performed', 'unknown')),
    -- how the outcome came to be known
    resolved_by    text NOT NULL DEFAULT '' CHECK (resolved_by IN ('', 'commit', 'look_up', 'operator')),
    settled_by     text NOT NULL DEFAULT '',
    settled_note   text NOT NULL DEFAULT '',
    sends          integer NOT NULL DEFAULT 1 CHECK (sends > 0),
    recorded_at    timestamptz NOT NULL,
    sent_at        timestamptz NOT NULL,
    -- from when on a look-up that finds nothing means that nothing happened
    decisive_at    timestamptz NOT NULL,
    resolved_at    timestamptz,
    CONSTRAINT write_intent_pkey PRIMARY KEY (tenant, key),
    CONSTRAINT write_intent_call_key UNIQUE (tenant, run_id, call_id),
    CONSTRAINT write_intent_plan_fkey FOREIGN KEY (tenant, run_id, call_id, revision)
        REFERENCES write_plan (tenant, run_id, call_id, revision),
    CONSTRAINT write_intent_resolved_check CHECK (
        CASE outcome
            WHEN 'open' THEN resolved_by = '' AND resolved_at IS NULL
            WHEN 'unknown' THEN resolved_by = '' AND resolved_at IS NOT NULL
            ELSE resolved_by <> '' AND resolved_at IS NOT NULL
        END),
    CONSTRAINT write_intent_settled_check CHECK ((settled_by <> '') = (resolved_by = 'operator'))
);

CREATE INDEX write_intent_unsettled_idx ON write_intent (tenant, recorded_at) WHERE outcome IN ('open', 'unknown');

-- An approval that was not believed. approver and token_id are empty unless the
-- signature was good: nobody is accused by a forgery.
CREATE TABLE approval_refusal (
    tenant   text NOT NULL CHECK (tenant <> ''),
    id       bigint GENERATED ALWAYS AS IDENTITY,
    run_id   text NOT NULL,
    call_id  text NOT NULL,
    code     text NOT NULL CHECK (code IN ('malformed', 'bad_signature', 'expired', 'wrong_run', 'wrong_call', 'wrong_plan',
                                           'already_decided', 'not_authorized', 'not_waiting')),
    token_id text NOT NULL DEFAULT '',
    approver text NOT NULL DEFAULT '',
    at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id),
    CONSTRAINT approval_refusal_run_fkey FOREIGN KEY (tenant, run_id) REFERENCES run (tenant, id)
);

CREATE INDEX approval_refusal_run_idx ON approval_refusal (tenant, run_id, id);

-- +goose StatementBegin
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['write_plan', 'write_intent', 'approval_refusal']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant_isolation ON %I USING (tenant = current_setting(''app.tenant'', true))
                        WITH CHECK (tenant = current_setting(''app.tenant'', true))', name);
    END LOOP;
END
$$;
-- +goose StatementEnd

GRANT SELECT, INSERT, UPDATE ON write_plan, write_intent TO fairlead_app;
GRANT SELECT, INSERT ON approval_refusal TO fairlead_app;

-- +goose Down

DROP TABLE approval_refusal, write_intent, write_plan;
-- The owner sees the rows of all tenants for this one statement.
ALTER TABLE tool_call NO FORCE ROW LEVEL SECURITY;
UPDATE tool_call SET status = 'abandoned' WHERE status = 'unknown';
ALTER TABLE tool_call FORCE ROW LEVEL SECURITY;
ALTER TABLE tool_call DROP CONSTRAINT tool_call_status_check;
ALTER TABLE tool_call ADD CONSTRAINT tool_call_status_check
    CHECK (status IN ('proposed', 'refused', 'running', 'succeeded', 'failed', 'abandoned'));
ALTER TABLE run DROP COLUMN waiting_since;
