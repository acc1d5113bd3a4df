--
-- A ttl as interval: exact elapsed time or refused, the same under every TimeZone, DateStyle and IntervalStyle.
-- Proves: I7 (expiry is the server's clock plus the ttl and nothing else), I5 (no ttl makes a lease that never ends)
--
-- 'exact': acquire and renew both expire at their call's instant plus the ttl, to the microsecond; else the SQLSTATE of the refusal.
CREATE FUNCTION ttl_outcome(ttl interval, seconds numeric) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  t0 numeric;
  t1 numeric;
  t2 numeric;
  granted numeric;
  renewed numeric;
  word text;
  message text;
BEGIN
  BEGIN
    t0 := extract(epoch FROM lease.now());
    SELECT extract(epoch FROM a.expires_at) INTO STRICT granted FROM lease.acquire('ttl', 'ann', ttl) a WHERE a.acquired;
    t1 := extract(epoch FROM lease.now());
    word := CASE WHEN granted - seconds BETWEEN t0 AND t1 THEN 'exact' ELSE format('acquire wrong by %s', granted - seconds - t0) END;
    RAISE EXCEPTION USING ERRCODE = 'ZZ000';  -- undo the grant: the shortest would make the COMMIT raise LE001
  EXCEPTION WHEN SQLSTATE 'ZZ000' THEN NULL;
    WHEN OTHERS THEN
      GET STACKED DIAGNOSTICS message = MESSAGE_TEXT;
      word := SQLSTATE || CASE WHEN message ~* '\mttl\M' THEN '' ELSE ' without naming the ttl: ' || message END;
  END;
  BEGIN
    PERFORM lease.acquire('ttl', 'ann', '1 hour');
    t1 := extract(epoch FROM lease.now());
    SELECT extract(epoch FROM r.expires_at) INTO STRICT renewed
      FROM lease.renew('ttl', 'ann', (SELECT i.epoch FROM lease.inspect('ttl') i), ttl) r WHERE r.status = 'ok';
    t2 := extract(epoch FROM lease.now());
    IF renewed - seconds NOT BETWEEN t1 AND t2 THEN word := format('%s, renew wrong by %s', word, renewed - seconds - t1); END IF;
    IF word <> 'exact' THEN word := word || ', renew took it'; END IF;
    RAISE EXCEPTION USING ERRCODE = 'ZZ000';
  EXCEPTION WHEN SQLSTATE 'ZZ000' THEN NULL;
    WHEN OTHERS THEN
      IF SQLSTATE <> left(word, 5) THEN word := word || ', renew ' || SQLSTATE; END IF;
  END;
  RETURN word;
END $$;

-- Read under one style, so that every round below tries the same values.
SET IntervalStyle = 'postgres';
CREATE TEMP TABLE ttls (n int GENERATED ALWAYS AS IDENTITY, text text, seconds numeric, ttl interval);
INSERT INTO ttls (text, seconds, ttl) VALUES
  ('1 microsecond', 0.000001, '1 microsecond'),
  ('0.000001 s', 0.000001, '0.000001 s'),
  ('1.5 s', 1.5, '1.5 s'),
  ('30 s', 30, '30 s'),
  ('1 day', 86400, '1 day'),
  ('24 hours', 86400, '24 hours'),
  ('1 day 1 microsecond', 86400.000001, '1 day 1 microsecond'),
  ('1 week', 604800, '1 week'),
  ('31 days', 2678400, '31 days'),
  ('365 days', 31536000, '365 days'),
  ('-1 day +25 hours', 3600, '-1 day +25 hours'),
  ('2 days -47 hours', 3600, '2 days -47 hours'),
  ('1 mon -1 mon +5 s', 5, interval '1 mon' - interval '1 mon' + interval '5 s'),
  ('1 year -12 mons +1 day', 86400, interval '1 year' - interval '12 mons' + interval '1 day'),
  ('100000 days', 8640000000, '100000 days'),
  ('2000000 hours', 7200000000, '2000000 hours'),
-- refused
  ('0', NULL, '0'),
  ('0.0000001 s', NULL, '0.0000001 s'),
  ('-1 microsecond', NULL, '-1 microsecond'),
  ('-1 s', NULL, '-1 s'),
  ('-1 day', NULL, '-1 day'),
  ('1 day -24 hours', NULL, '1 day -24 hours'),
  ('1 day -24 hours -1 microsecond', NULL, interval '1 day' - interval '24 hours 1 microsecond'),
  ('-1 day +24 hours', NULL, '-1 day +24 hours'),
  ('1 mon', NULL, '1 mon'),
  ('1 mon -29 days', NULL, '1 mon -29 days'),
  ('1 mon -30 days', NULL, '1 mon -30 days'),
  ('-1 mon +40 days', NULL, '-1 mon +40 days'),
  ('1 year', NULL, '1 year'),
  ('-1 year +3650 days', NULL, '-1 year +3650 days'),
  ('1 mon 1 s', NULL, '1 mon 1 s'),
  ('10 years', NULL, '10 years'),
  ('300000 years', NULL, '300000 years'),
  ('178000000 years', NULL, '178000000 years'),
  ('-178000000 years', NULL, '-178000000 years'),
  ('106751991 days', NULL, '106751991 days'),
  ('106751992 days', NULL, '106751992 days'),
  ('2147483647 days', NULL, '2147483647 days'),
  ('-2147483648 days', NULL, '-2147483648 days'),
  ('2562047788:00:54.775807', NULL, '2562047788:00:54.775807'),
  ('-2562047788:00:54.775807', NULL, '-2562047788:00:54.775807'),
  ('2147483647 days 2562047788 hours', NULL, '2147483647 days 2562047788 hours'),
  ('2147483647 days -2562047788 hours', NULL, '2147483647 days -2562047788 hours'),
  ('-2147483648 days -2562047788 hours', NULL, '-2147483648 days -2562047788 hours'),
  ('178956970 years 7 mons 2147483647 days 2562047788:00:54.775807', NULL, interval '178956970 years 7 mons 2147483647 days 2562047788:00:54.775807');

CREATE TEMP TABLE outcomes (zone text, style text, datestyle text, n int, outcome text);
CREATE PROCEDURE try_ttls() LANGUAGE plpgsql AS $$
DECLARE
  zone text;
  style text;
  dates text;
BEGIN
  -- zones with a change of the clock now and then, half hours, and the ends of the day
  FOREACH zone IN ARRAY ARRAY['UTC', 'America/New_York', 'Europe/Berlin', 'Australia/Lord_Howe', 'Asia/Kathmandu', 'Pacific/Kiritimati', 'Pacific/Pago_Pago'] LOOP
    FOREACH style IN ARRAY ARRAY['postgres', 'postgres_verbose', 'sql_standard', 'iso_8601'] LOOP
      FOREACH dates IN ARRAY ARRAY['ISO, MDY', 'German', 'SQL, DMY'] LOOP
        PERFORM set_config('timezone', zone, true), set_config('intervalstyle', style, true), set_config('datestyle', dates, true);
        INSERT INTO outcomes SELECT zone, style, dates, t.n, ttl_outcome(t.ttl, t.seconds) FROM ttls t;
      END LOOP;
    END LOOP;
  END LOOP;
END $$;
CALL try_ttls();
SELECT t.text, min(o.outcome) AS outcome, count(DISTINCT o.outcome) AS outcomes, count(*) AS tries
  FROM ttls t JOIN outcomes o USING (n) GROUP BY t.n, t.text ORDER BY t.n;

-- Days whose microseconds overflow, though the sum would not: exact or refused, never something else.
SELECT ttl_outcome(interval '106751992 days -2562047788 hours', 72000) IN ('exact', '22023') AS exact_or_refused;

-- Infinity: where the type has it (17 and later), ours to refuse; else the type's.
SELECT word, outcome_only(format($$SELECT lease.acquire('ttl', 'ann', %L)$$, word))
       = CASE WHEN current_setting('server_version_num')::int >= 170000 THEN '22023' ELSE '22007' END AS refused
  FROM (VALUES ('infinity'), ('-infinity')) w(word);

-- A day is 24 hours also where the clocks change: over the whole year ahead, by ttls that end in each of its days.
SET timezone = 'America/New_York';
SELECT count(*) AS days, count(*) FILTER (WHERE ttl_outcome(make_interval(days => d), d * 86400) = 'exact') AS exact FROM generate_series(1, 400) d;
RESET timezone;
SET IntervalStyle = 'sql_standard';
SELECT acquired, (expires_at - lease.now()) <= interval '1 1:00:00' AS in_time FROM lease.acquire('ttl style', 'ann', '1 1:00:00');
RESET IntervalStyle;
SELECT remaining > interval '24:59:00' AND remaining <= interval '25:00:00' AS remaining FROM lease.inspect('ttl style');
