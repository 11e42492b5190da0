-- name: RunTotals :one
-- What a run consumed: the sum of its settles, and of the attempts that are
-- still open at what they reserved.
SELECT count(*)::bigint AS attempts,
       coalesce(sum(a.input_tokens), 0)::bigint AS input_tokens,
       coalesce(sum(a.cached_input_tokens), 0)::bigint AS cached_input_tokens,
       coalesce(sum(a.output_tokens), 0)::bigint AS output_tokens,
       coalesce(sum(coalesce(s.tokens, r.tokens)), 0)::bigint AS billed_tokens,
       coalesce(sum(CASE WHEN s.kind IS NULL THEN r.cost_micros ELSE s.cost_micros END), 0)::bigint AS cost_micros,
       (count(*) FILTER (WHERE NOT coalesce(s.usage_known, false)))::bigint AS unknown_attempts,
       (count(*) FILTER (WHERE (CASE WHEN s.kind IS NULL THEN r.cost_micros ELSE s.cost_micros END) IS NULL))::bigint AS unpriced_attempts,
       (count(*) FILTER (WHERE s.kind IS NULL))::bigint AS open_attempts,
       coalesce(max(a.step), 0)::integer AS last_step
FROM model_attempt a
JOIN ledger_entry r ON r.tenant = a.tenant AND r.run_id = a.run_id AND r.step = a.step AND r.attempt = a.attempt AND r.kind = 'reserve'
LEFT JOIN ledger_entry s ON s.tenant = a.tenant AND s.run_id = a.run_id AND s.step = a.step AND s.attempt = a.attempt AND s.kind = 'settle'
WHERE a.tenant = @tenant AND a.run_id = @run_id;
