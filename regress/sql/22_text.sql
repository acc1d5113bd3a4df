--
-- Keys and owners are any text of 1 to 255 bytes, told apart by their bytes.
-- Proves: I11, I2 (each key has its own epochs)
--
\set VERBOSITY sqlstate
CREATE TEMP TABLE words (n int GENERATED ALWAYS AS IDENTITY, what text, word text);
INSERT INTO words (what, word) VALUES
  ('plain', 'text'),
  ('single quote', ''''),
  ('quotes', 'it''s "quoted" `so`'),
  ('injection', '''; DROP SCHEMA lease CASCADE; --'),
  ('dollar', '$$ $1 $body$ %s %L %%'),
  ('backslash', '\'),
  ('backslashes', '\\n \x41 \000'),
  ('newline', E'\n'),
  ('lines', E'one\ntwo\r\nthree'),
  ('tab', E'\t'),
  ('control', E'\x01\x1b[0m\x7f'),
  ('space', ' '),
  ('before', ' text'),
  ('after', 'text '),
  ('upper', 'TEXT'),
  ('word null', 'NULL'),
  ('braces', '{a,"b"}'),
  ('json', '{"key": "k", "n": [1]}'),
  ('two bytes', 'é'),
  ('decomposed', 'é'),
  ('four bytes', '😀'),
  ('joined', '👩‍👩‍👧'),
  ('right to left', 'שלום‏'),
  ('ideographs', '鍵'),
  ('noncharacter', '􏿿'),
  ('wildcards', 'te_t%'),
  ('255 bytes', repeat('a', 255)),
  ('255 bytes of four', repeat('😀', 63) || '''\ '),
  ('255 newlines', repeat(E'\n', 255)),
  ('255 quotes', repeat('''', 255));
SELECT count(*) AS words, count(DISTINCT word) AS distinct, min(octet_length(word)) AS shortest, max(octet_length(word)) AS longest FROM words;

-- Every word as key and as owner, through all four operations and the view.
CREATE FUNCTION round_trip(key text, owner text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  granted record;
  seen record;
BEGIN
  SELECT * INTO granted FROM lease.acquire(key, owner, '1 hour', NULL, to_jsonb(owner));
  IF NOT granted.acquired OR granted.epoch <> 1 THEN RETURN format('acquire: %s', granted); END IF;
  SELECT * INTO seen FROM lease.inspect(key);
  IF seen.owner <> owner OR octet_length(seen.owner) <> octet_length(owner) OR seen.payload <> to_jsonb(owner) THEN RETURN format('inspect: %s', seen); END IF;
  SELECT * INTO seen FROM lease.leases l WHERE l.key = round_trip.key;
  IF seen.owner IS DISTINCT FROM owner THEN RETURN format('leases: %s', seen); END IF;
  IF (SELECT c.owner FROM lease.claims c WHERE c.key = round_trip.key) IS DISTINCT FROM owner THEN RETURN 'claims'; END IF;
  IF octet_length(owner) < 255 AND (SELECT acquired FROM lease.acquire(key, owner || 'x', '1 hour')) THEN RETURN 'acquired twice'; END IF;
  IF (SELECT status FROM lease.renew(key, owner, 1, '1 hour')) <> 'ok' THEN RETURN 'renew'; END IF;
  RETURN 'ok';
END $$;
SELECT n, what, round_trip(word, word) FROM words ORDER BY n;
-- After the commit: each its own, none touched by another.
SELECT count(*) AS held FROM words, lease.inspect(word) i WHERE i.owner = word AND i.epoch = 1 AND i.state = 'held' AND i.payload = to_jsonb(word);
SELECT count(*) AS shown FROM words w JOIN lease.leases l ON l.key = w.word AND l.owner = w.word;
-- Near misses are other owners.
SELECT w.what, o.what AS tried, r.status FROM words w, words o, LATERAL lease.renew(w.word, o.word, 1, '1 hour') r
 WHERE r.status <> CASE WHEN w.n = o.n THEN 'ok' ELSE 'not_owner' END;
SELECT count(*) AS denied FROM words w, words o, LATERAL lease.acquire(w.word, o.word, '1 hour') a WHERE w.n <> o.n AND NOT a.acquired;
SELECT n, what, r.status, i.state, i.epoch FROM words, LATERAL lease.release(word, word, 1) r, LATERAL lease.inspect(left(word, length(word) + 0 * length(r.status))) i
 WHERE r.status <> 'ok' OR i.state <> 'free' OR i.epoch <> 2;

-- A zero byte and bytes that are no text do not get in at all.
SELECT outcome_only($$SELECT lease.acquire(E'a\000b', 'ann', '1 s')$$);

-- Arguments as tables store them: short headers, compressed, out of line.
CREATE TEMP TABLE stored (key text, owner text, payload jsonb, filler text) WITH (toast_tuple_target = 128);
ALTER TABLE stored ALTER filler SET STORAGE PLAIN;
INSERT INTO stored SELECT 'stored ' || repeat('k', 248), repeat('o', 255), to_jsonb(repeat('p', 1000)), repeat('f', 2000);
ALTER TABLE stored ALTER payload SET STORAGE EXTERNAL;
INSERT INTO stored SELECT 'stored', 'o', jsonb_agg(i), repeat('f', 2000) FROM generate_series(1000, 1150) i;
SELECT octet_length(key) AS key, pg_column_size(key) < 100 AS short_key, octet_length(payload::text) AS payload, pg_column_size(payload) < 100 AS short_payload FROM stored ORDER BY 1;
SELECT pg_relation_size(reltoastrelid) > 0 AS out_of_line FROM pg_class WHERE oid = 'stored'::regclass;
SELECT octet_length(s.key) AS key, a.acquired, a.epoch FROM stored s, LATERAL lease.acquire(s.key, s.owner, '1 hour', NULL, s.payload) a ORDER BY 1;
SELECT octet_length(s.key) AS key, i.owner = s.owner AS owner, i.payload = s.payload AS payload FROM stored s, LATERAL lease.inspect(s.key) i ORDER BY 1;

-- Values of the domain and char types come as text.
CREATE DOMAIN lease_key AS varchar(20);
SELECT acquired FROM lease.acquire('char'::char(10), 'ann'::name, '1 hour');
SELECT acquired FROM lease.acquire('domain'::lease_key, 'ann'::varchar, '1 hour');
SELECT state_of('char'), state_of('domain');
