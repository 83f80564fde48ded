-- The figures of a log: tables over those of relay/insight/database.py. NULL is unknown, or does not apply; never 0.
-- `relay report --db FILE` keeps them, so that any SQL tool can ask further.

-- answers: what a model answered in a session's conversation. What an agent asks beside it has no turn.
-- `band` is of the fill relative to the soft line (relay/session/gauge.py).
CREATE TABLE answers AS
SELECT seq, at, session, turn, model, cost_usd, estimated, stop_reason, fill_tokens, soft_tokens, hard_tokens,
       window_tokens, band_of(fill_tokens, soft_tokens) AS band,
       usage_input_tokens + usage_cache_read_tokens + usage_cache_write_5m_tokens + usage_cache_write_1h_tokens AS prompt,
       usage_cache_read_tokens AS cache_read, usage_output_tokens AS output
FROM ResponseReceived WHERE session IS NOT NULL AND turn > 0;
CREATE UNIQUE INDEX answers_of_session ON answers (session, seq);
CREATE INDEX answers_with_band ON answers (session, seq) WHERE band IS NOT NULL;

-- turns: the answers whose prompt was counted. `measured`: by the endpoint, so that the context behind it is known.
-- `before`: the context behind the last measured answer. `carried`: tokens that an earlier prompt had already.
-- `fell`: the prompt is smaller than the context before it by a quarter and by 10,000 tokens, so it was compacted or
-- cleared; an absolute fall of 50,000 (ContextSpectre) never shows in a window below 100,000. `epoch` counts the falls.
-- `turns_on`, `token_usd_on`: the prompts from this one to the next fall, and what they pay for one token in the cache.
CREATE TABLE turns AS
WITH counted AS (
    SELECT *, NOT estimated AND stop_reason NOT IN ('cut', 'lost') AS measured FROM answers WHERE prompt IS NOT NULL
), linked AS (
    SELECT *, max(CASE WHEN measured THEN seq END)
        OVER (PARTITION BY session ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_seq
    FROM counted
), compared AS (
    SELECT a.*, coalesce(b.prompt + b.output, 0) AS before
    FROM linked a LEFT JOIN answers b ON b.session = a.session AND b.seq = a.before_seq
), judged AS (
    SELECT *, measured AND before - prompt > 10000 AND before - prompt > before * 0.25 AS fell,
           read_usd(model) AS token_usd
    FROM compared
), parted AS (
    SELECT *, sum(fell) OVER of_session AS epoch, row_number() OVER of_session AS n
    FROM judged WINDOW of_session AS (PARTITION BY session ORDER BY seq)
)
SELECT seq, at, session, turn, model, cost_usd, fill_tokens, soft_tokens, hard_tokens, window_tokens, band, prompt,
       cache_read, output, measured, before, fell, epoch, n, min(prompt, before) AS carried,
       min(prompt, before) * token_usd AS carried_usd,
       count(*) OVER on_from AS turns_on, sum(token_usd) OVER on_from AS token_usd_on
FROM parted WINDOW on_from AS (PARTITION BY session, epoch ORDER BY seq DESC);
CREATE UNIQUE INDEX turns_of_session ON turns (session, seq);
CREATE UNIQUE INDEX turns_by_number ON turns (session, n);
CREATE INDEX turns_measured ON turns (session, seq) WHERE measured;

-- parts: what came into a context: the parts of the first prompt (`fixed`: they stay), relay's words, results of tools.
-- `tokens`: the estimate by size, scaled to what the endpoint counted for all parts that are new in a prompt, at most
-- by two and at least by a half. `since`: the number of the first prompt that has it. What is in no prompt is left out.
CREATE TABLE parts AS
WITH sized AS (
    SELECT session, seq, part.value ->> 'source' AS source, part.value ->> 'tokens' AS estimate, 1 AS fixed
    FROM SessionStarted, json_each(prompt) AS part
    UNION ALL SELECT session, seq, 'relay', (size_bytes + 3) / 4, 0 FROM RelaySpoke WHERE session IS NOT NULL
    UNION ALL SELECT session, seq, 'tool ' || name, (result_bytes + 3) / 4, 0 FROM ToolFinished WHERE session IS NOT NULL
), placed AS (
    SELECT *, max(estimate, 0) AS size, (
        SELECT t.seq FROM turns t WHERE t.session = sized.session AND t.seq > sized.seq AND t.measured
        ORDER BY t.seq LIMIT 1
    ) AS prompt_seq
    FROM sized
), grouped AS (
    SELECT p.session, p.seq, source, fixed, size, prompt_seq, t.n AS since, t.epoch,
           max(0, prompt - CASE WHEN fell THEN 0 ELSE before END) AS room,
           sum(size) OVER (PARTITION BY prompt_seq) AS of_all
    FROM placed p JOIN turns t ON t.session = p.session AND t.seq = p.prompt_seq
)
SELECT session, seq, source, fixed, prompt_seq, since, epoch,
       CASE WHEN room >= 2 * of_all THEN 2 * size WHEN 2 * room <= of_all THEN (size + 1) / 2
            ELSE CAST(size * room / of_all AS INTEGER) END AS tokens
FROM grouped;
CREATE INDEX parts_of_session ON parts (session, epoch);
CREATE INDEX parts_by_seq ON parts (seq);

-- sources: tokens of all prompts of a session by source. Each part counts once for each prompt that has it; `history`
-- is the rest: answers, calls, thinking, and what no event explains. They add up to what the endpoint counted.
-- `held`: the same for the last context.
CREATE TABLE sources AS
WITH ends AS (SELECT session, epoch, max(n) AS last FROM turns GROUP BY session, epoch
), wholes AS (
    SELECT t.session, sum(prompt) AS prompts, max(n) AS last, max(epoch) AS epoch,
        (SELECT prompt + output FROM turns m WHERE m.session = t.session AND m.measured ORDER BY m.seq DESC LIMIT 1)
        AS context
    FROM turns t GROUP BY session
), sums AS (
    SELECT p.session, p.source, sum(tokens * (CASE WHEN fixed THEN w.last ELSE e.last END - since + 1)) AS tokens,
           sum(tokens * (fixed OR p.epoch = w.epoch)) AS held
    FROM parts p JOIN ends e ON e.session = p.session AND e.epoch = p.epoch JOIN wholes w ON w.session = p.session
    GROUP BY p.session, p.source
), scaled AS (
    SELECT s.session, source,
           CASE WHEN sum(tokens) OVER of_session > prompts THEN tokens * prompts / sum(tokens) OVER of_session
                ELSE tokens END AS tokens,
           CASE WHEN sum(held) OVER of_session > context THEN held * context / sum(held) OVER of_session
                ELSE held END AS held
    FROM sums s JOIN wholes w ON w.session = s.session WINDOW of_session AS (PARTITION BY s.session)
), whole AS (
    SELECT session, source, CAST(tokens AS INTEGER) AS tokens, CAST(held AS INTEGER) AS held FROM scaled
)
SELECT * FROM whole
UNION ALL
SELECT w.session, 'history', prompts - coalesce(sum(h.tokens), 0), coalesce(context, 0) - coalesce(sum(h.held), 0)
FROM wholes w LEFT JOIN whole h ON h.session = w.session GROUP BY w.session
UNION ALL
SELECT session, CASE query WHEN '' THEN 'other' ELSE query END,
       sum(usage_input_tokens + usage_cache_read_tokens + usage_cache_write_5m_tokens + usage_cache_write_1h_tokens), 0
FROM ResponseReceived WHERE session IS NOT NULL AND turn <= 0 AND usage_input_tokens IS NOT NULL GROUP BY session, 2;

-- uses: what calls name of earlier results (by the call's id) and of files in the first message (``preload PATH``).
CREATE TABLE uses AS
SELECT session, seq, used.value AS name FROM ToolFinished, json_each(uses) AS used WHERE session IS NOT NULL;
CREATE INDEX uses_by_name ON uses (session, name);

-- results: results of tools in a context. `repeats`: the same call before it had the same result. `again`: the same
-- part of a file with the same content was shown before in this context (chapter 5 of the Token Wiki, corrected for
-- writes and ranges): a changed file is no duplicate.
CREATE TABLE results AS
SELECT f.session, f.seq, f.at, p.prompt_seq, p.since, p.epoch, f.call_id, f.name, f.call_sha256, f.shown_path AS path,
       f.shown_first_line AS first_line, f.shown_last_line AS last_line, p.tokens,
       row_number() OVER (PARTITION BY f.session ORDER BY f.seq) AS k,
       coalesce(lag(f.result_sha256) OVER (PARTITION BY f.session, f.call_sha256 ORDER BY f.seq) = f.result_sha256, 0)
       AS repeats,
       f.shown_path IS NOT NULL AND row_number() OVER (
           PARTITION BY f.session, p.epoch, f.shown_path, f.shown_first_line, f.shown_last_line, f.result_sha256
           ORDER BY f.seq) > 1 AS again
FROM ToolFinished f JOIN parts p ON p.seq = f.seq;
CREATE INDEX results_by_call ON results (session, epoch, call_sha256, k);
CREATE INDEX results_by_path ON results (session, epoch, path, k);
CREATE INDEX results_by_id ON results (session, call_id);
CREATE INDEX results_by_seq ON results (session, seq);

-- calls: every call of a tool in a session, with what it was about and the tokens of its result.
CREATE INDEX IF NOT EXISTS started_by_call ON ToolStarted (session, call_id, seq);
CREATE TABLE calls AS
SELECT f.session, f.seq, f.name, f.is_error, f.duration_s, coalesce(b.summary, '') AS summary, coalesce((
           SELECT turn FROM answers a WHERE a.session = f.session AND a.seq < f.seq ORDER BY a.seq DESC LIMIT 1
       ), 0) AS turn, coalesce(r.tokens, 0) AS tokens, coalesce(r.repeats, 0) AS repeats
FROM ToolFinished f
LEFT JOIN ToolStarted b ON b.seq = (
    SELECT max(seq) FROM ToolStarted o WHERE o.session = f.session AND o.call_id = f.call_id AND o.seq < f.seq)
LEFT JOIN results r ON r.session = f.session AND r.seq = f.seq
WHERE f.session IS NOT NULL;
CREATE INDEX calls_of_session ON calls (session, seq);

-- superseded: results that a later one replaces: that of the same call made again, whatever it answers, and one that
-- shows the same part of a file; the second page of a file supersedes nothing of the first. `since`: the number of the
-- first prompt that has the later one. At most the next 1,000 results are looked at.
CREATE TABLE superseded AS
WITH later AS (
    SELECT r.seq, r.session, r.epoch, r.tokens, (
        SELECT s.since FROM results s WHERE s.session = r.session AND s.epoch = r.epoch
        AND s.call_sha256 = r.call_sha256 AND s.k > r.k ORDER BY s.k LIMIT 1
    ) AS by_call, (
        SELECT s.since FROM results s WHERE s.session = r.session AND s.epoch = r.epoch AND s.path = r.path
        AND s.k > r.k AND s.k <= r.k + 1000 AND s.first_line <= r.first_line AND s.last_line >= r.last_line
        ORDER BY s.k LIMIT 1
    ) AS by_part
    FROM results r
)
SELECT seq, session, epoch, tokens, min(coalesce(by_call, by_part), coalesce(by_part, by_call)) AS since
FROM later WHERE by_call IS NOT NULL OR by_part IS NOT NULL;
CREATE INDEX superseded_by_seq ON superseded (seq);

-- changes: the first change of a file by name in a session. seen: the first session that was shown a file or changed it.
CREATE TABLE changes AS
SELECT session, changed.value AS path, min(seq) AS seq
FROM ToolFinished, json_each(changed_paths) AS changed WHERE session IS NOT NULL GROUP BY 1, 2;
CREATE TABLE seen AS
SELECT path, min(session) AS session
FROM (SELECT path, session FROM results WHERE path IS NOT NULL UNION ALL SELECT path, session FROM changes) GROUP BY path;
CREATE UNIQUE INDEX seen_by_path ON seen (path);

-- ghosts: files that a session changed by name, though it had been shown nothing of them, and an earlier session had:
-- edited from memory that is gone (ghost context of ContextSpectre, without guessing from a summary).
CREATE TABLE ghosts AS
SELECT c.session, c.path, c.seq FROM changes c JOIN seen s ON s.path = c.path AND s.session < c.session
WHERE NOT EXISTS (
    SELECT 1 FROM results r WHERE r.session = c.session AND r.path = c.path AND r.prompt_seq < c.seq
);

-- plan_items: the items of each phase as they were shown last; `in_plan`: the phase is in the last whole plan.
CREATE TABLE plan_items AS
WITH shown AS (
    SELECT seq, phase.value ->> 'id' AS phase_id, phase.value ->> 'title' AS title, phase.value -> 'items' AS items,
           phase.key AS place
    FROM PlanShown, json_each(phases) AS phase
), whole AS (SELECT max(seq) AS seq FROM PlanShown WHERE NOT changed_only
), latest AS (SELECT phase_id, max(seq) AS seq FROM shown GROUP BY phase_id)
SELECT s.phase_id, s.title, item.value ->> 'id' AS item, item.value ->> 'text' AS text, item.value ->> 'state' AS state,
       item.value -> 'paths' AS paths, s.seq,
       s.phase_id IN (SELECT phase_id FROM shown WHERE seq = (SELECT seq FROM whole)) AS in_plan
FROM shown s JOIN latest USING (phase_id, seq) LEFT JOIN json_each(s.items) AS item;

-- faults: calls, results and changes of each session by the band of its fill when they happened.
CREATE TABLE faults AS
WITH marked AS (
    SELECT session, seq, 'turns' AS what FROM answers
    UNION ALL SELECT session, seq, 'calls' FROM ToolFinished WHERE session IS NOT NULL
    UNION ALL SELECT session, seq, 'errors' FROM ToolFinished WHERE session IS NOT NULL AND is_error
    UNION ALL SELECT session, seq, 'shown' FROM results WHERE path IS NOT NULL
    UNION ALL SELECT session, seq, 'duplicates' FROM results WHERE again
    UNION ALL SELECT session, seq, 'changed' FROM changes
    UNION ALL SELECT session, seq, 'ghosts' FROM ghosts
    UNION ALL SELECT session, seq, 'gates' FROM GateFinished WHERE session IS NOT NULL AND NOT baseline
    UNION ALL SELECT session, seq, 'red_gates' FROM GateFinished
    WHERE session IS NOT NULL AND NOT baseline AND NOT passed AND expected = ''
), placed AS (
    SELECT session, what, (
        SELECT band FROM answers a WHERE a.session = m.session AND a.seq <= m.seq AND band IS NOT NULL
        ORDER BY a.seq DESC LIMIT 1
    ) AS band
    FROM marked m
)
SELECT session, band, sum(what = 'turns') AS turns, sum(what = 'calls') AS calls, sum(what = 'errors') AS errors,
       sum(what = 'shown') AS shown, sum(what = 'duplicates') AS duplicates, sum(what = 'changed') AS changed,
       sum(what = 'ghosts') AS ghosts, sum(what = 'gates') AS gates, sum(what = 'red_gates') AS red_gates
FROM placed WHERE band IS NOT NULL GROUP BY session, band;

-- billed: what all answers of a session, or of a run outside of sessions (NULL), used and cost; lost ones included.
CREATE TABLE billed AS
SELECT run, session, count(*) AS turns, sum(usage_input_tokens IS NULL) AS unknown_turns,
       coalesce(sum(usage_input_tokens), 0) AS input_tokens,
       coalesce(sum(usage_cache_read_tokens), 0) AS cache_read_tokens,
       coalesce(sum(usage_cache_write_5m_tokens), 0) AS cache_write_5m_tokens,
       coalesce(sum(usage_cache_write_1h_tokens), 0) AS cache_write_1h_tokens,
       coalesce(sum(usage_output_tokens), 0) AS output_tokens, coalesce(sum(usage_thinking_tokens), 0) AS thinking_tokens,
       CASE WHEN count(*) = count(cost_usd) THEN sum(cost_usd) END AS cost_usd, max(estimated) AS estimated,
       sum(duration_s) AS answer_s
FROM ResponseReceived GROUP BY run, session;
CREATE INDEX billed_by_session ON billed (session);

-- sessions: one row each; tokens by source are in `sources`.
-- `tax`: the re-read tax of *Session tokendynamics*: superseded tokens in each later prompt, counted and not forecast.
-- `unused`: in the last context, results of more than 2,000 tokens (relay/session/recall.py) of which no later call
-- names a path or a line, and that are not superseded. `cut`: output that the cap kept out; NULL if a call did not say.
-- `turns`: responses; one that was sent again because it failed counts where it may be billed; those of unknown usage
-- (`unknown_turns`) are in no sum. `retries_s`: seconds of waits before them. `ticks`: items that commits ticked;
-- `records`: claims in the ledger; `amendments`: changes of the plan; `commits`: of work, not of the plan alone.
-- `crossings`: passed the soft line. `explored`: questions that explorers answered; their tokens are in the sums too.
-- `ended`, `ending`: NULL while it works, and if it was cut off. `first_tokens`: the prompt of the first answer;
-- `last_tokens`: the context behind the last one; `peak_tokens`: the largest. Behind its last answer, its state:
-- `history_tokens`: everything behind the first message. `history_share`: its part of the room from the first prompt to
-- the soft line. `distance_tokens`: from the end of role, tools and rules to the newest turn. `growth_tokens`: per turn,
-- NULL before the second and where it shrank (ContextSpectre's counts the prefix before the first compaction, and is
-- too large); `turns_left` to the line at that growth, 0 past it. `signal`: 1 - (superseded + unused) / history.
CREATE TABLE sessions AS
WITH turn_sums AS (
    SELECT session, sum(carried) AS carried_tokens, max(n) AS last, max(epoch) AS epoch, max(seq) AS last_seq,
           CASE WHEN count(*) = count(carried_usd) THEN sum(carried_usd) END AS carried_usd,
           max(CASE WHEN measured THEN prompt + output END) AS peak_tokens,
           min(CASE WHEN measured THEN seq END) AS first_seq, max(CASE WHEN measured THEN seq END) AS measured_seq,
           sum(measured) AS measured
    FROM turns GROUP BY session
), tools AS (
    SELECT session, count(*) AS calls, sum(is_error) AS errors, sum(duration_s) AS tools_s,
           sum(name = 'record' AND NOT is_error) AS records, sum(name = 'amend' AND NOT is_error) AS amendments,
           sum(name = 'explore' AND NOT is_error) AS explored,
           CASE WHEN count(*) = count(cut_bytes) THEN (sum(cut_bytes) + 3) / 4 END AS cut_tokens
    FROM ToolFinished WHERE session IS NOT NULL GROUP BY session
), explorers AS (
    SELECT session, CASE WHEN count(*) = count(cost_usd) THEN sum(cost_usd) END AS explored_usd,
           sum(usage_input_tokens + usage_cache_read_tokens + usage_cache_write_5m_tokens + usage_cache_write_1h_tokens
               + usage_output_tokens) AS explored_tokens
    FROM ResponseReceived WHERE session IS NOT NULL AND query <> '' AND turn <= 0 GROUP BY session
), retried AS (
    SELECT session, sum(attempt > 0) AS retries, sum(wait_s) AS retries_s
    FROM RetryScheduled WHERE session IS NOT NULL GROUP BY session
), crossed AS (SELECT session, sum(line = 'soft') AS crossings FROM GaugeCrossed WHERE session IS NOT NULL GROUP BY session
), broken AS (SELECT session, count(*) AS cache_breaks FROM CacheBroken WHERE session IS NOT NULL GROUP BY session
), landed AS (
    SELECT session, sum(json_array_length(items)) AS ticks, sum(phase_id <> '') AS commits
    FROM Committed WHERE session IS NOT NULL GROUP BY session
), doubled AS (
    SELECT session, sum(again) AS duplicate_reads, sum(again * tokens) AS duplicate_tokens FROM results GROUP BY session
), noise AS (
    SELECT s.session, sum(tokens * turns_on) AS tax_tokens, sum(tokens * token_usd_on) AS tax_usd,
           sum(tokens * (s.epoch = t.epoch)) AS superseded_tokens
    FROM superseded s JOIN turn_sums t ON t.session = s.session
    JOIN turns n ON n.session = s.session AND n.n = s.since GROUP BY s.session
), large AS (
    SELECT r.session, sum(r.tokens) AS unused_tokens
    FROM results r JOIN turn_sums t ON t.session = r.session AND t.epoch = r.epoch
    WHERE r.tokens > 2000 AND r.seq NOT IN (SELECT seq FROM superseded)
      AND r.since < t.last + (r.session IN (SELECT session FROM SessionEnded))
      AND NOT EXISTS (SELECT 1 FROM uses u WHERE u.session = r.session AND u.name = r.call_id AND u.seq > r.seq)
    GROUP BY r.session
), ghostly AS (SELECT session, count(*) AS ghost_edits FROM ghosts GROUP BY session
), front AS (
    SELECT session, sum(held) AS front_tokens FROM sources WHERE source IN ('system', 'tools', 'rules') GROUP BY session
), lasts AS (
    SELECT session, model, soft_tokens, hard_tokens, window_tokens, max(seq) AS seq FROM answers GROUP BY session
), joined AS (
SELECT s.session, s.run, r.run_id, s.session_id, s.phase_id, s.title, s.number, s.reason, s.runner, s.rungs,
       s.handoff_note, s.prompt, s.preloads, s.at AS began, e.at AS ended, coalesce(e."end", '') AS ending,
       coalesce(e.result, '') AS result, coalesce(e.detail, '') AS detail, coalesce(l.model, '') AS model,
       l.soft_tokens, l.hard_tokens, l.window_tokens, f.prompt AS first_tokens, m.prompt + m.output AS last_tokens,
       peak_tokens, coalesce(t.measured, 0) AS measured, max(0, m.prompt + m.output - f.prompt) AS history_tokens,
       m.prompt + m.output - coalesce(front_tokens, 0) AS distance_tokens,
       b.turns, unknown_turns, input_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens,
       output_tokens, thinking_tokens, CASE WHEN b.turns IS NULL THEN 0.0 ELSE b.cost_usd END AS cost_usd,
       b.estimated, answer_s, carried_tokens, CASE WHEN t.session IS NULL THEN 0.0 ELSE t.carried_usd END AS carried_usd, tax_tokens,
       CASE WHEN t.session IS NULL THEN 0.0 WHEN t.carried_usd IS NOT NULL THEN coalesce(tax_usd, 0.0) END AS tax_usd,
       calls, errors, tools_s, records, amendments, explored, CASE WHEN calls THEN cut_tokens ELSE 0 END AS cut_tokens,
       CASE WHEN explored_tokens IS NULL THEN 0.0 ELSE explored_usd END AS explored_usd, explored_tokens,
       retries, retries_s, crossings, cache_breaks, ticks, commits, duplicate_reads, duplicate_tokens,
       coalesce(superseded_tokens, 0) AS superseded_tokens, coalesce(unused_tokens, 0) AS unused_tokens,
       ghost_edits
FROM SessionStarted s
LEFT JOIN RunStarted r ON r.run = s.run
LEFT JOIN SessionEnded e ON e.session = s.session
LEFT JOIN billed b ON b.session = s.session
LEFT JOIN lasts l ON l.session = s.session
LEFT JOIN turn_sums t ON t.session = s.session
LEFT JOIN turns f ON f.session = s.session AND f.seq = t.first_seq
LEFT JOIN turns m ON m.session = s.session AND m.seq = t.measured_seq
LEFT JOIN tools USING (session) LEFT JOIN explorers USING (session) LEFT JOIN retried USING (session)
LEFT JOIN crossed USING (session) LEFT JOIN broken USING (session) LEFT JOIN landed USING (session)
LEFT JOIN doubled USING (session) LEFT JOIN noise USING (session) LEFT JOIN large USING (session)
LEFT JOIN ghostly USING (session) LEFT JOIN front USING (session)
)
SELECT *, CASE WHEN soft_tokens > first_tokens THEN history_tokens * 1.0 / (soft_tokens - first_tokens) END
       AS history_share, CASE WHEN measured > 1 AND history_tokens > 0 THEN history_tokens * 1.0 / measured END
       AS growth_tokens, CASE WHEN measured > 1 AND history_tokens > 0
       THEN max(0, soft_tokens - last_tokens) * measured / history_tokens END AS turns_left,
       CASE WHEN history_tokens > 0 THEN 1 - min(1.0, (superseded_tokens + unused_tokens) * 1.0 / history_tokens) END
       AS signal
FROM joined ORDER BY session;

-- gates: of each phase, without baselines. `repaired`: the gate was red, and its session then sent another request.
CREATE INDEX IF NOT EXISTS requests_of_session ON RequestStarted (session, seq);
CREATE TABLE gates AS
WITH linked AS (
    SELECT seq, phase_id, session, checks, evidence, NOT passed AND expected = '' AS red,
           lead(seq) OVER (PARTITION BY phase_id ORDER BY seq) AS next_seq
    FROM GateFinished WHERE NOT baseline
)
SELECT *, red AND EXISTS (
    SELECT 1 FROM RequestStarted q WHERE q.session = g.session AND q.seq > g.seq AND q.seq < coalesce(next_seq, 1e18)
) AS repaired FROM linked g;

CREATE INDEX IF NOT EXISTS texts_of_session ON TextShown (session);
CREATE INDEX IF NOT EXISTS finished_of_session ON ToolFinished (session, shown_path);
CREATE INDEX changes_of_session ON changes (session, path);

-- claims: what a session was shown of the ledger: `named` in its words, `read` or `changed` a file that it cites, which
-- is no proof that the claim was the reason.
CREATE TABLE claims AS
WITH shown AS (
    SELECT session, claim.key AS place, claim.value ->> 'id' AS id, claim.value ->> 'tokens' AS tokens,
           claim.value -> 'paths' AS paths
    FROM SessionStarted, json_each(claims) AS claim
), words AS (
    SELECT session, text FROM TextShown WHERE session IN (SELECT session FROM shown)
    UNION ALL SELECT session, summary FROM ToolStarted WHERE session IN (SELECT session FROM shown)
), judged AS (
SELECT session, place, id, tokens,
       EXISTS (SELECT 1 FROM words w WHERE w.session = c.session AND names(w.text, c.id)) AS named,
       EXISTS (SELECT 1 FROM json_each(c.paths) p JOIN ToolFinished f ON f.session = c.session
               WHERE f.shown_path = p.value) AS read,
       EXISTS (SELECT 1 FROM json_each(c.paths) p JOIN changes h ON h.session = c.session AND h.path = p.value) AS changed
FROM shown c
)
SELECT *, named OR read OR changed AS used FROM judged ORDER BY session, place;

-- retrieved: what sessions were shown, and used: files that they read, claims, and files in the first message (preload).
-- A file is used if a later call names it or a line of it, or changes it.
CREATE TABLE retrieved AS
WITH files AS (SELECT session, path, sum(tokens) AS tokens FROM results WHERE path IS NOT NULL GROUP BY session, path
), named AS (
    SELECT u.session, r.path FROM uses u JOIN results r ON r.session = u.session AND r.call_id = u.name
    UNION SELECT session, name FROM uses UNION SELECT session, path FROM changes
)
SELECT session, 'file' AS kind, count(*) AS shown,
       sum((session, path) IN (SELECT session, path FROM named)) AS used, sum(tokens) AS tokens
FROM files f GROUP BY session
UNION ALL
SELECT s.session, 'preload', count(*), sum(EXISTS (
           SELECT 1 FROM uses u WHERE u.session = s.session AND u.name = 'preload ' || p.value)),
       (SELECT coalesce(sum(part.value ->> 'tokens'), 0) FROM json_each(s.prompt) part
        WHERE part.value ->> 'source' = 'preload')
FROM SessionStarted s, json_each(s.preloads) p GROUP BY s.session
UNION ALL SELECT session, 'ledger', count(*), sum(used), sum(tokens) FROM claims GROUP BY session;

-- touched: files that a phase's tools changed by name, and those of its commits.
CREATE TABLE touched AS
SELECT f.phase_id, changed.value AS file FROM ToolFinished f, json_each(f.changed_paths) AS changed
UNION SELECT c.phase_id, changed.value ->> 'path' FROM Committed c, json_each(c.files) AS changed WHERE c.phase_id <> '';

-- outside: what no session has: the time of gates, which is the phase's, and what happened outside of sessions, whose
-- phase is NULL where it is the plan's. A commit that joins a finished phase and the branch's newer ones ticks nothing new.
CREATE TABLE outside AS
WITH found AS (
    SELECT run, phase_id, duration_s AS gates_s, 0 AS ticks, 0 AS commits, 0 AS retries, 0.0 AS retries_s
    FROM GateFinished
    UNION ALL SELECT run, nullif(phase_id, ''), 0.0, json_array_length(items), phase_id <> '', 0, 0.0
    FROM Committed c WHERE session IS NULL AND (items = '[]' OR NOT EXISTS (
        SELECT 1 FROM Committed e WHERE e.phase_id = c.phase_id AND e.items = c.items AND e.seq < c.seq))
    UNION ALL SELECT run, NULL, 0.0, 0, 0, attempt > 0, wait_s FROM RetryScheduled WHERE session IS NULL
)
SELECT run, phase_id, sum(gates_s) AS gates_s, sum(ticks) AS ticks, sum(commits) AS commits, sum(retries) AS retries,
       sum(retries_s) AS retries_s
FROM found GROUP BY run, phase_id;

-- runs: one process of `relay run` or `relay plan`, or one transcript. `exit_code`, `ended`: NULL while it works, and if
-- it was killed. `spent_usd`: cost of the plan before it, at most so much if `spent_estimated`. `questions`: those that sessions had left to the user.
CREATE TABLE runs AS
SELECT s.run, s.began, s.last_at, coalesce(b.run_id, '') AS run_id, coalesce(command, '') AS command,
       coalesce(model, '') AS model, coalesce(plan_path, '') AS plan_path, coalesce(branch, '') AS branch,
       coalesce(sandbox, '') AS sandbox, coalesce(context, '') AS context, coalesce(rehearsed, 0) AS rehearsed,
       CASE WHEN m.seq IS NULL THEN b.cap_usd ELSE m.cap_usd END AS cap_usd, b.spent_usd,
       coalesce(b.estimated, 0) AS spent_estimated, e.at AS ended, exit_code,
       coalesce(e.reason, '') AS reason, coalesce(next_command, '') AS next_command,
       coalesce(questions, '[]') AS questions, (
           SELECT json_group_array(text) FROM (
               SELECT text FROM Noticed n WHERE n.run = s.run AND warning GROUP BY text ORDER BY min(seq))
       ) AS warnings
FROM spans s LEFT JOIN RunStarted b ON b.run = s.run
LEFT JOIN RunEnded e ON e.seq = (SELECT max(seq) FROM RunEnded l WHERE l.run = s.run)
LEFT JOIN CapMoved m ON m.seq = (SELECT max(seq) FROM CapMoved l WHERE l.run = s.run)
ORDER BY s.run;

-- phases: in the order of their first events. `items`: ids, as the plan was last shown; `declared`: paths that they name;
-- `ticked`: ids that commits ticked. `repairs`: red gates that the session was told to repair. `first_gate_red`: NULL if
-- none has run.
CREATE TABLE phases AS
WITH named AS (
    SELECT phase.value ->> 'id' AS phase_id, seq, phase.key AS place FROM PlanShown, json_each(phases) AS phase
    UNION ALL SELECT phase_id, seq, 0 FROM SessionStarted
    UNION ALL SELECT phase_id, seq, 0 FROM GateFinished
    UNION ALL SELECT phase_id, seq, 0 FROM Committed WHERE phase_id <> ''
), first AS (SELECT phase_id, min(seq * 1e6 + place) AS place FROM named GROUP BY phase_id
), done AS (SELECT * FROM Committed WHERE phase_id <> '')
SELECT f.phase_id,
       coalesce((SELECT max(title) FROM plan_items i WHERE i.phase_id = f.phase_id AND title <> ''),
                (SELECT title FROM SessionStarted s WHERE s.phase_id = f.phase_id AND title <> '' ORDER BY seq LIMIT 1),
                '') AS title,
       (SELECT count(*) FROM SessionStarted s WHERE s.phase_id = f.phase_id) AS sessions,
       (SELECT count(*) FROM SessionEnded e JOIN SessionStarted s ON s.session = e.session
        WHERE s.phase_id = f.phase_id AND e.result = 'handoff') AS hand_offs,
       count(g.seq) AS gates, coalesce(sum(g.red), 0) AS red_gates, coalesce(sum(g.repaired), 0) AS repairs,
       (SELECT red FROM gates h WHERE h.phase_id = f.phase_id ORDER BY seq LIMIT 1) AS first_gate_red,
       EXISTS (SELECT 1 FROM done d WHERE d.phase_id = f.phase_id AND status = 'done') AS is_done,
       (SELECT json_group_array(item) FROM plan_items i WHERE i.phase_id = f.phase_id AND item IS NOT NULL) AS items,
       (SELECT json_group_array(DISTINCT p.value) FROM plan_items i, json_each(i.paths) p WHERE i.phase_id = f.phase_id)
       AS declared,
       (SELECT json_group_array(DISTINCT t.value) FROM done d, json_each(d.items) t WHERE d.phase_id = f.phase_id)
       AS ticked,
       (SELECT json_group_array("commit") FROM done d WHERE d.phase_id = f.phase_id) AS commit_ids,
       (SELECT json_group_array(file) FROM (SELECT file FROM touched t WHERE t.phase_id = f.phase_id ORDER BY file))
       AS touched
FROM first f LEFT JOIN gates g ON g.phase_id = f.phase_id GROUP BY f.phase_id ORDER BY f.place;

-- tools: all calls of each. `result_tokens`: each result once. `duplicates`: the very same result as the same call before.
-- costliest: the results of each that took most of a context.
CREATE TABLE tools AS
SELECT name, count(*) AS calls, sum(is_error) AS errors, sum(duration_s) AS duration_s, sum(tokens) AS result_tokens,
       sum(repeats) AS duplicates, sum(repeats * tokens) AS duplicate_tokens
FROM calls GROUP BY name ORDER BY result_tokens DESC, calls DESC, name;
CREATE TABLE costliest AS
WITH ranked AS (
    SELECT session, seq, row_number() OVER (PARTITION BY name ORDER BY tokens DESC, seq) AS place
    FROM calls WHERE tokens > 0
)
SELECT c.name AS tool, c.summary, c.tokens, s.session_id, c.turn
FROM ranked JOIN calls c USING (session, seq) JOIN sessions s USING (session) WHERE place <= 10 ORDER BY place;

-- proofs: commits that ticked items, each with the checks of the phase's last gate before it, and the files that it left.
CREATE TABLE proofs AS
SELECT c.at, c."commit", c.subject, c.status, c.phase_id, c.items, coalesce(s.session_id, '') AS session_id,
       coalesce(r.run_id, '') AS run_id, CASE WHEN c.phase_id = '' THEN '[]' ELSE c.files END AS files,
       (SELECT json_group_array(coalesce(p.text, '')) FROM json_each(c.items) i
        LEFT JOIN plan_items p ON p.phase_id = c.phase_id AND p.item = i.value WHERE c.phase_id <> '') AS texts,
       (SELECT json_group_array(json_remove(value, '$.output', '$.causes')) FROM json_each(g.checks)) AS checks,
       coalesce(g.evidence, '[]') AS left
FROM Committed c LEFT JOIN gates g ON g.seq = (
    SELECT max(seq) FROM gates h WHERE h.phase_id = c.phase_id AND h.seq < c.seq)
LEFT JOIN sessions s ON s.session = c.session LEFT JOIN RunStarted r ON r.run = c.run
WHERE c.items <> '[]' ORDER BY c.seq;
