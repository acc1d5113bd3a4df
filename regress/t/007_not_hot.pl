# Updates that find no room on their page: new index entries, old ones left behind, and always the right row found.
# An old snapshot that keeps dead versions from being pruned brings them about.
# Proves: I2, I6, I8, I9

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $node = lease_cluster('not_hot');
$node->safe_psql('postgres', 'CREATE EXTENSION amcheck');
my $counters = q{SELECT n_tup_upd, n_tup_upd - n_tup_hot_upd FROM pg_stat_all_tables WHERE relid = 'lease.entry'::regclass};
sub sound
{
	my ($when) = @_;
	row_is($node, q{SELECT count(*) FROM verify_heapam('lease.entry')}, '0', "$when: the table is sound");
	row_is($node, q{SELECT count(bt_index_check(indexrelid, true)) FROM pg_index WHERE indrelid = 'lease.entry'::regclass}, '1', "$when: its index is sound");
	return;
}

# The largest rows there are, besides small ones.
my $big = q{repeat('b', 253) || lpad(i::text, 2, '0')};
$node->safe_psql('postgres', "SELECT count(*) FROM generate_series(1, 20) i, LATERAL lease.acquire($big, repeat('o', 255), '1 day', NULL, to_jsonb(repeat('p', 1022)))");
$node->safe_psql('postgres', q{SELECT count(*) FROM generate_series(1, 20) i, LATERAL lease.acquire('small ' || i, 'o', '1 day')});

my $old = session($node);
$old->value('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM lease.entry');
my ($upd, $cold) = split /\|/, counted($node, $counters, $old);

my $session = session($node);
$session->value(qq{
	CREATE PROCEDURE renew_all(rounds int) LANGUAGE plpgsql AS \$\$
	BEGIN
		FOR round IN 1..rounds LOOP
			FOR i IN 1..20 LOOP
				IF (SELECT status FROM lease.renew($big, repeat('o', 255), 1, make_interval(hours => round))) <> 'ok' THEN RAISE EXCEPTION 'big % %', round, i; END IF;
				COMMIT;
				IF (SELECT status FROM lease.renew('small ' || i, 'o', 1, make_interval(hours => round))) <> 'ok' THEN RAISE EXCEPTION 'small % %', round, i; END IF;
				COMMIT;
			END LOOP;
		END LOOP;
	END \$\$});
$session->answers('CALL renew_all(100)', '', 'renewed under an old snapshot: each finds its row');
my ($upd2, $cold2) = split /\|/, counted($node, $counters, $old, $session);
is($upd2 - $upd, 4000, 'each renewal is one update');
cmp_ok($cold2 - $cold, '>=', 1000, 'very many of them not HOT');
sound('while the snapshot is open');
row_is($node, q{SELECT count(*), count(DISTINCT key) FROM lease.leases WHERE state = 'held' AND epoch = 1 AND remaining > '99 hours' AND ttl = '100 hours'},
	'40|40', 'each key shows its last renewal, once');
row_is($node, qq{SELECT count(*) FROM generate_series(1, 20) i, LATERAL lease.inspect($big) s WHERE s.remaining > '99 hours' AND octet_length(s.payload::text) = 1024}, '20', 'inspect finds it too');

# Transitions over such rows, new keys between them.
$session->answers(qq{SELECT r.status, count(*) FROM generate_series(1, 20) i, LATERAL lease.release($big, repeat('o', 255), 1) r GROUP BY 1}, 'ok|20', 'released');
$session->answers(qq{SELECT a.acquired, a.epoch, count(*) FROM generate_series(1, 20) i, LATERAL lease.acquire($big, 'p', '1 hour') a GROUP BY 1, 2}, 't|3|20', 'acquired anew: epochs go on');
$session->answers(q{SELECT a.acquired, a.epoch, count(*) FROM generate_series(1, 500) i, LATERAL lease.acquire('between ' || i, 'p', '1 hour') a GROUP BY 1, 2}, 't|1|500', 'new keys');
sound('after transitions');

# The snapshot of before sees what it saw, the functions see the latest all the same.
$old->answers(qq{SELECT count(*) FROM lease.entry}, '40', 'the old snapshot still reads its version of the table');
$old->answers(qq{SELECT s.owner, s.epoch FROM (SELECT 1 AS i) x, LATERAL lease.inspect($big) s}, 'p|3', 'lease.inspect reads the latest');
$old->answers(qq{SELECT a.acquired FROM (SELECT 1 AS i) x, LATERAL lease.acquire($big, 'p', '1 hour') a}, '40001', 'a change over it is 40001');
$old->quit;

$node->safe_psql('postgres', 'VACUUM lease.entry');
sound('vacuumed');
$session->answers('CALL renew_all(1)', 'P0001', 'the old terms are over');
row_is($node, q{SELECT count(*), count(DISTINCT key) FROM lease.leases}, '540|540', 'each key once');
$session->value('VACUUM FULL lease.entry; REINDEX TABLE lease.entry');
sound('rewritten');
$session->answers(qq{SELECT r.status, count(*) FROM generate_series(1, 20) i, LATERAL lease.renew($big, 'p', 3, '1 hour') r GROUP BY 1}, 'ok|20', 'found after VACUUM FULL and REINDEX');
row_is($node, q{SELECT epoch, count(*) FROM lease.leases GROUP BY 1 ORDER BY 1}, "1|520\n3|20", 'epochs as told');
$session->quit;
$node->stop;

done_testing();
