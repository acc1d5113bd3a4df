# Indexes that the table's owner adds: a commit keeps up those that need it and no others, and every index finds every key.
# Updates are then not HOT, or HOT with entries in summarizing indexes only, depending on the version.
# Proves: I8, I9, I11

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $node = lease_cluster('own_indexes');
my $amcheck = value($node, q{SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'});
$node->safe_psql('postgres', 'CREATE EXTENSION amcheck') if $amcheck;
my $session = session($node);
$session->value(q{
	CREATE PROCEDURE renew_all(rounds int, epoch bigint) LANGUAGE plpgsql AS $$
	BEGIN
		FOR round IN 1..rounds LOOP
			FOR i IN 1..20 LOOP
				IF (SELECT status FROM lease.renew('key ' || i, 'o', renew_all.epoch, make_interval(hours => round))) <> 'ok' THEN RAISE EXCEPTION '% %', round, i; END IF;
				COMMIT;
			END LOOP;
		END LOOP;
	END $$});

# Every B-tree has an entry for every row; every key is found once, by the primary key, without an index, and by the one added.
sub sound
{
	my ($epoch, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	SKIP:
	{
		skip 'amcheck is not there', 2 unless $amcheck;
		row_is($node, q{SELECT count(*) FROM verify_heapam('lease.entry')}, '0', "$when: the table is sound");
		my $unique = $node->pg_version >= 17 ? ', true' : '';
		row_is($node, qq{SELECT count(bt_index_check(indexrelid, true$unique)) > 0 FROM pg_index JOIN pg_class c ON c.oid = indexrelid JOIN pg_am a ON a.oid = c.relam
			WHERE indrelid = 'lease.entry'::regclass AND amname = 'btree'}, 't', "$when: its indexes are sound");
	}
	my $found = "SELECT count(*), count(DISTINCT key) FROM lease.entry WHERE epoch = $epoch AND";
	row_is($node, "SET enable_seqscan = off; SET enable_bitmapscan = off; $found key = ANY (ARRAY(SELECT 'key ' || i FROM generate_series(1, 20) i))", '20|20', "$when: found by the primary key");
	row_is($node, "SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off; $found key LIKE 'key %'", '20|20', "$when: found without an index");
	row_is($node, "SET enable_seqscan = off; $found expires_at > lease.now() + '30 min'", '20|20', "$when: found by what was added");
	row_is($node, qq{SELECT count(*) FROM generate_series(1, 20) i, LATERAL lease.inspect('key ' || i) s WHERE s.state = 'held' AND s.epoch = $epoch}, '20', "$when: found by inspect");
	return;
}

foreach my $case (
	[ 'a summarizing index', 'CREATE INDEX added ON lease.entry USING brin (expires_at) WITH (pages_per_range = 1)' ],
	[ 'a summarizing index beside a B-tree', 'CREATE INDEX added ON lease.entry USING brin (expires_at) WITH (pages_per_range = 1); CREATE INDEX more ON lease.entry (owner)' ],
	[ 'a B-tree', 'CREATE INDEX added ON lease.entry (expires_at)' ])
{
	my ($what, $create) = @$case;
	$node->safe_psql('postgres', "DROP INDEX IF EXISTS lease.added, lease.more; TRUNCATE lease.entry; $create");
	$session->answers(q{SELECT count(*) FROM generate_series(1, 20) i, LATERAL lease.acquire('key ' || i, 'o', '1 hour') a WHERE a.acquired}, '20', "$what: acquired");
	$session->answers('CALL renew_all(20, 1)', '', "$what: renewed");
	sound(1, "$what: renewed");
	$session->answers(q{SELECT count(*) FROM generate_series(1, 20) i, LATERAL lease.release('key ' || i, 'o', 1) r WHERE r.status = 'ok'}, '20', "$what: released");
	$session->answers(q{SELECT count(*) FROM generate_series(1, 20) i, LATERAL lease.acquire('key ' || i, 'o', '1 hour') a WHERE a.acquired}, '20', "$what: acquired anew");
	sound(3, "$what: acquired anew");
	$node->safe_psql('postgres', 'VACUUM lease.entry');
	$session->answers('CALL renew_all(5, 3)', '', "$what: renewed once more");
	sound(3, "$what: vacuumed and renewed");
}
$session->quit;
$node->stop;

done_testing();
