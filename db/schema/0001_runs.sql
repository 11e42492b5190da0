-- Runs, their conversation, and the ledger of what they consumed.
--
-- Every table of tenant data has row-level security, forced for its owner as
-- well: without app.tenant set in the transaction nothing is visible. The
-- programs work as fairlead_app, which owns nothing. A program's login needs
-- to be a member of it: GRANT fairlead_app TO <login>.

-- +goose Up

-- Roles belong to the whole cluster: another database may have made it already,
-- or be making it at this moment.
-- +goose StatementBegin
DO $$
BEGIN
    CREATE ROLE fairlead_app NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;
-- +goose StatementEnd

-- What an agent was told, pinned by digest. Definitions are the deployment's
-- and not a tenant's.
CREATE TABLE agent_definition (
    digest     text PRIMARY KEY CHECK (digest ~ '^[0-9a-f]{64}$'),
    name       text NOT NULL,
    version    text NOT NULL,
    body       jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- A tenant's own limits, set by the operator. NULL means the configured default.
CREATE TABLE tenant_limit (
    tenant                 text PRIMARY KEY CHECK (tenant <> ''),
    max_running            integer CHECK (max_running >= 0),
    max_running_per_user   integer CHECK (max_running_per_user >= 0),
    daily_tokens           bigint CHECK (daily_tokens >= 0),
    daily_cost_micros      bigint CHECK (daily_cost_micros >= 0),
    user_daily_tokens      bigint CHECK (user_daily_tokens >= 0),
    user_daily_cost_micros bigint CHECK (user_daily_cost_micros >= 0)
);

-- What a tenant (user_id '') and each of its users consumed on a day (UTC),
-- reservations of calls in flight included.
CREATE TABLE daily_usage (
    tenant      text NOT NULL CHECK (tenant <> ''),
    day         date NOT NULL,
    user_id     text NOT NULL,
    tokens      bigint NOT NULL CHECK (tokens >= 0),
    cost_micros bigint NOT NULL CHECK (cost_micros >= 0),
    PRIMARY KEY (tenant, day, user_id)
);

-- version counts the submits that were accepted, generation the runs that were
-- begun, last_seq the messages of both sides.
CREATE TABLE conversation (
    tenant      text NOT NULL CHECK (tenant <> ''),
    id          text NOT NULL CHECK (id <> ''),
    user_id     text NOT NULL CHECK (user_id <> ''),
    environment text NOT NULL CHECK (environment <> ''),
    version     bigint NOT NULL DEFAULT 0 CHECK (version >= 0),
    generation  bigint NOT NULL DEFAULT 0 CHECK (generation >= 0),
    last_seq    bigint NOT NULL DEFAULT 0 CHECK (last_seq >= 0),
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);

CREATE TABLE message (
    tenant          text NOT NULL CHECK (tenant <> ''),
    id              text NOT NULL CHECK (id <> ''),
    conversation_id text NOT NULL,
    seq             bigint NOT NULL CHECK (seq > 0),
    role            text NOT NULL CHECK (role IN ('user', 'assistant')),
    content         text NOT NULL,
    content_hash    text NOT NULL CHECK (content_hash ~ '^[0-9a-f]{64}$'),
    visibility      text NOT NULL CHECK (visibility IN ('visible', 'partial', 'hidden')),
    run_id          text NOT NULL,
    parent_id       text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id),
    CONSTRAINT message_seq_key UNIQUE (tenant, conversation_id, seq),
    CONSTRAINT message_conversation_fkey FOREIGN KEY (tenant, conversation_id) REFERENCES conversation (tenant, id)
);

-- version counts the transitions. step and tool_calls are the totals, written
-- when the run ends.
CREATE TABLE run (
    tenant              text NOT NULL CHECK (tenant <> ''),
    id                  text NOT NULL CHECK (id <> ''),
    user_id             text NOT NULL CHECK (user_id <> ''),
    environment         text NOT NULL CHECK (environment <> ''),
    conversation_id     text NOT NULL,
    generation          bigint NOT NULL CHECK (generation > 0),
    agent               text NOT NULL,
    definition_version  text NOT NULL,
    definition_digest   text NOT NULL REFERENCES agent_definition (digest),
    page                text NOT NULL,
    flags               text[] NOT NULL,
    status              text NOT NULL CHECK (status IN ('queued', 'running', 'waiting_confirmation', 'succeeded', 'failed', 'canceled')),
    reason              text CHECK (reason IN (
                            'final', 'step_limit', 'tool_call_limit', 'token_limit', 'cost_limit', 'deadline',
                            'repeated_action', 'repeated_error', 'output_truncated', 'malformed_output',
                            'content_policy', 'context_overflow', 'declined_by_policy', 'outcome_unknown',
                            'model_unavailable', 'authorization_unavailable', 'superseded', 'canceled', 'internal')),
    detail              text NOT NULL DEFAULT '',
    step                integer NOT NULL DEFAULT 0 CHECK (step >= 0),
    tool_calls          integer NOT NULL DEFAULT 0 CHECK (tool_calls >= 0),
    max_steps           integer NOT NULL CHECK (max_steps > 0),
    max_tool_calls      integer NOT NULL CHECK (max_tool_calls >= 0),
    max_tokens          bigint NOT NULL CHECK (max_tokens > 0),
    max_cost_micros     bigint NOT NULL CHECK (max_cost_micros >= 0),
    timeout_ns          bigint NOT NULL CHECK (timeout_ns > 0),
    deadline            timestamptz NOT NULL,
    workflow_id         text NOT NULL,
    request_hash        text NOT NULL CHECK (request_hash ~ '^[0-9a-f]{64}$'),
    question_message_id text NOT NULL,
    answer_message_id   text,
    version             integer NOT NULL DEFAULT 1 CHECK (version > 0),
    created_at          timestamptz NOT NULL DEFAULT now(),
    started_at          timestamptz,
    ended_at            timestamptz,
    PRIMARY KEY (tenant, id),
    CONSTRAINT run_generation_key UNIQUE (tenant, conversation_id, generation),
    CONSTRAINT run_conversation_fkey FOREIGN KEY (tenant, conversation_id) REFERENCES conversation (tenant, id),
    CONSTRAINT run_question_fkey FOREIGN KEY (tenant, question_message_id) REFERENCES message (tenant, id),
    CONSTRAINT run_answer_fkey FOREIGN KEY (tenant, answer_message_id) REFERENCES message (tenant, id),
    -- A run has a reason when it has ended, and only then; each reason belongs
    -- to one status, and only a stored answer is success.
    CONSTRAINT run_end_reason_check CHECK (
        CASE status
            WHEN 'succeeded' THEN reason IS NOT NULL AND reason = 'final' AND answer_message_id IS NOT NULL
            WHEN 'canceled' THEN reason IS NOT NULL AND reason IN ('canceled', 'superseded')
            WHEN 'failed' THEN reason IS NOT NULL AND reason NOT IN ('final', 'canceled', 'superseded')
            ELSE reason IS NULL
        END),
    CONSTRAINT run_end_time_check CHECK ((ended_at IS NOT NULL) = (status IN ('succeeded', 'failed', 'canceled')))
);

CREATE INDEX run_open_idx ON run (tenant, conversation_id) WHERE status IN ('queued', 'running', 'waiting_confirmation');
CREATE INDEX run_created_idx ON run (tenant, created_at DESC, id);

-- A terminal status never changes, whoever asks.
-- +goose StatementBegin
CREATE FUNCTION run_refuse_change_after_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'FL002', MESSAGE = 'a run that has ended does not change';
END
$$;
-- +goose StatementEnd

CREATE TRIGGER run_terminal BEFORE UPDATE ON run FOR EACH ROW
    WHEN (OLD.status IN ('succeeded', 'failed', 'canceled')
          AND (NEW.status, NEW.reason, NEW.detail, NEW.answer_message_id, NEW.step, NEW.tool_calls, NEW.ended_at)
              IS DISTINCT FROM
              (OLD.status, OLD.reason, OLD.detail, OLD.answer_message_id, OLD.step, OLD.tool_calls, OLD.ended_at))
    EXECUTE FUNCTION run_refuse_change_after_end();

-- seq equals the run's version after the move: two moves away from one version
-- collide here.
CREATE TABLE run_transition (
    tenant      text NOT NULL CHECK (tenant <> ''),
    run_id      text NOT NULL,
    seq         integer NOT NULL CHECK (seq > 0),
    from_status text CHECK (from_status IN ('queued', 'running', 'waiting_confirmation')),
    to_status   text NOT NULL CHECK (to_status IN ('queued', 'running', 'waiting_confirmation', 'succeeded', 'failed', 'canceled')),
    reason      text,
    at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, run_id, seq),
    CONSTRAINT run_transition_run_fkey FOREIGN KEY (tenant, run_id) REFERENCES run (tenant, id)
);

-- One paid call to a model. NULL tokens mean that the provider reported none,
-- NULL cost that the model has no price: unknown, which is not zero.
-- response is content; action is what the workflow was told.
CREATE TABLE model_attempt (
    tenant               text NOT NULL CHECK (tenant <> ''),
    run_id               text NOT NULL,
    step                 integer NOT NULL CHECK (step >= 0),
    attempt              integer NOT NULL CHECK (attempt > 0),
    try                  integer NOT NULL CHECK (try >= 0),
    model                text NOT NULL,
    provider             text NOT NULL,
    status               text NOT NULL CHECK (status IN ('started', 'succeeded', 'failed', 'lost', 'canceled')),
    reserved_tokens      bigint NOT NULL CHECK (reserved_tokens >= 0),
    reserved_cost_micros bigint CHECK (reserved_cost_micros >= 0),
    input_tokens         bigint CHECK (input_tokens >= 0),
    cached_input_tokens  bigint CHECK (cached_input_tokens >= 0),
    output_tokens        bigint CHECK (output_tokens >= 0),
    failure_code         text NOT NULL DEFAULT '',
    finish               text NOT NULL DEFAULT '',
    revision             text NOT NULL DEFAULT '',
    provider_request_id  text NOT NULL DEFAULT '',
    response             json,
    action               jsonb,
    started_at           timestamptz NOT NULL DEFAULT now(),
    ended_at             timestamptz,
    PRIMARY KEY (tenant, run_id, step, attempt),
    CONSTRAINT model_attempt_run_fkey FOREIGN KEY (tenant, run_id) REFERENCES run (tenant, id),
    CONSTRAINT model_attempt_end_check CHECK ((ended_at IS NULL) = (status = 'started'))
);

-- Append-only. Every reserve has exactly one settle once the run is over; what
-- a run consumed is the sum of its settles.
CREATE TABLE ledger_entry (
    tenant      text NOT NULL CHECK (tenant <> ''),
    run_id      text NOT NULL,
    step        integer NOT NULL,
    attempt     integer NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('reserve', 'settle')),
    tokens      bigint NOT NULL CHECK (tokens >= 0),
    cost_micros bigint CHECK (cost_micros >= 0),
    usage_known boolean NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT ledger_entry_pkey PRIMARY KEY (tenant, run_id, step, attempt, kind),
    CONSTRAINT ledger_entry_attempt_fkey FOREIGN KEY (tenant, run_id, step, attempt)
        REFERENCES model_attempt (tenant, run_id, step, attempt)
);

-- One call that the model proposed. arguments are canonical JSON, or what the
-- model wrote if that is not JSON; envelope is what the model is shown.
CREATE TABLE tool_call (
    tenant           text NOT NULL CHECK (tenant <> ''),
    run_id           text NOT NULL,
    call_id          text NOT NULL,
    step             integer NOT NULL CHECK (step >= 0),
    idx              integer NOT NULL CHECK (idx >= 0),
    provider_call_id text NOT NULL,
    tool             text NOT NULL,
    tool_version     text NOT NULL,
    risk             text NOT NULL CHECK (risk IN ('', 'read', 'write')),
    arguments        text NOT NULL,
    arguments_hash   text NOT NULL,
    status           text NOT NULL CHECK (status IN ('proposed', 'refused', 'running', 'succeeded', 'failed', 'abandoned')),
    error_code       text NOT NULL DEFAULT '',
    error_hash       text NOT NULL DEFAULT '',
    envelope         text,
    result_hash      text NOT NULL DEFAULT '',
    executions       integer NOT NULL DEFAULT 0 CHECK (executions >= 0),
    proposed_at      timestamptz NOT NULL DEFAULT now(),
    started_at       timestamptz,
    ended_at         timestamptz,
    PRIMARY KEY (tenant, run_id, call_id),
    CONSTRAINT tool_call_step_key UNIQUE (tenant, run_id, step, idx),
    CONSTRAINT tool_call_run_fkey FOREIGN KEY (tenant, run_id) REFERENCES run (tenant, id)
);

-- The full result of a call; its ID is the call's.
CREATE TABLE tool_result (
    tenant       text NOT NULL CHECK (tenant <> ''),
    run_id       text NOT NULL,
    call_id      text NOT NULL,
    content      bytea NOT NULL,
    content_type text NOT NULL CHECK (content_type IN ('application/json', 'text/plain')),
    hash         text NOT NULL CHECK (hash ~ '^[0-9a-f]{64}$'),
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, run_id, call_id),
    CONSTRAINT tool_result_call_fkey FOREIGN KEY (tenant, run_id, call_id) REFERENCES tool_call (tenant, run_id, call_id)
);

-- Adds to a day's usage of tenant and user; a limit of NULL is no limit. Over a
-- limit it raises FL001 with the limit's name, which undoes the transaction.
-- The tenant's row is the busiest of all: call this last before the commit.
-- +goose StatementBegin
CREATE FUNCTION reserve_daily(
    in_tenant text, in_user text, in_day date, in_tokens bigint, in_cost_micros bigint,
    tenant_tokens bigint, tenant_cost_micros bigint, user_tokens bigint, user_cost_micros bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    used daily_usage;
BEGIN
    INSERT INTO daily_usage AS d (tenant, day, user_id, tokens, cost_micros)
    VALUES (in_tenant, in_day, '', in_tokens, in_cost_micros)
    ON CONFLICT (tenant, day, user_id) DO UPDATE
        SET tokens = d.tokens + excluded.tokens, cost_micros = d.cost_micros + excluded.cost_micros
    RETURNING * INTO used;
    IF used.tokens > tenant_tokens THEN
        RAISE EXCEPTION USING ERRCODE = 'FL001', MESSAGE = 'tenant_daily_tokens';
    ELSIF used.cost_micros > tenant_cost_micros AND in_cost_micros > 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'FL001', MESSAGE = 'tenant_daily_cost';
    END IF;

    INSERT INTO daily_usage AS d (tenant, day, user_id, tokens, cost_micros)
    VALUES (in_tenant, in_day, in_user, in_tokens, in_cost_micros)
    ON CONFLICT (tenant, day, user_id) DO UPDATE
        SET tokens = d.tokens + excluded.tokens, cost_micros = d.cost_micros + excluded.cost_micros
    RETURNING * INTO used;
    IF used.tokens > user_tokens THEN
        RAISE EXCEPTION USING ERRCODE = 'FL001', MESSAGE = 'user_daily_tokens';
    ELSIF used.cost_micros > user_cost_micros AND in_cost_micros > 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'FL001', MESSAGE = 'user_daily_cost';
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['tenant_limit', 'daily_usage', 'conversation', 'message', 'run', 'run_transition',
                                'model_attempt', 'ledger_entry', 'tool_call', 'tool_result']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant_isolation ON %I USING (tenant = current_setting(''app.tenant'', true))
                        WITH CHECK (tenant = current_setting(''app.tenant'', true))', name);
    END LOOP;
END
$$;
-- +goose StatementEnd

GRANT SELECT ON goose_db_version, tenant_limit TO fairlead_app;
GRANT SELECT, INSERT ON agent_definition, message, run_transition, ledger_entry, tool_result TO fairlead_app;
GRANT SELECT, INSERT, UPDATE ON daily_usage, conversation, run, model_attempt, tool_call TO fairlead_app;

-- +goose Down

DROP TABLE tool_result, tool_call, ledger_entry, model_attempt, run_transition, run, message, conversation,
    daily_usage, tenant_limit, agent_definition;
DROP FUNCTION reserve_daily, run_refuse_change_after_end;
-- The role stays: other databases of the cluster may use it. So does its grant
-- on goose_db_version.
