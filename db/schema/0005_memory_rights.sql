-- A participant sees what belongs to the group or project (ISO-2, ERASE-1), and what
-- is said again is kept for longer (LTM-4).

-- +goose Up

-- Where the person who asks takes part now, as kind and ID: nowhere, once erased.
-- +goose StatementBegin
CREATE FUNCTION memory_shared() RETURNS text[] LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT coalesce(array_agg(p.kind || '/' || p.id), '{}')
        FROM memory_participant p
        WHERE p.tenant = current_setting('app.tenant', true) AND p.user_id = nullif(current_setting('app.memory_subject', true), '') AND p.removed_at IS NULL
          AND NOT EXISTS (SELECT FROM memory_erasure e WHERE e.tenant = p.tenant AND e.user_id = p.user_id AND e.kind = 'subject'));
END
$$;
-- +goose StatementEnd

CREATE POLICY memory_shared ON memory_record FOR SELECT USING (
    tenant = (SELECT current_setting('app.tenant', true)) AND scope_kind IN ('group', 'project')
    AND (scope_kind || '/' || scope_id) = ANY ((SELECT memory_shared())::text[]));

GRANT UPDATE (expires_at) ON memory_record TO fairlead_app;

-- +goose Down

REVOKE UPDATE (expires_at) ON memory_record FROM fairlead_app;
DROP POLICY memory_shared ON memory_record;
DROP FUNCTION memory_shared;
