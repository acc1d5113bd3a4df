# Refused calls write nothing: no tuple, no transaction id, no WAL to speak of.
# Proves: I10

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

# nothing else is to write: no statistics of running transactions, no checkpoint
my $node = lease_cluster('refusals', conf => "checkpoint_timeout = 1d\nbgwriter_lru_maxpages = 0\n");
my $calls = 10000;

$node->safe_psql('postgres', $_) foreach (
	"SELECT lease.acquire('held', 'ann', '1 day')",
	"SELECT lease.acquire('free', 'ann', '1 day')",
	"SELECT lease.release('free', 'ann', 1)",
	"SELECT lease.acquire('lapsed', 'ann', '1 s')",
	'SELECT pg_sleep(1)');

my %refused = (
	'acquire of a held key' => q{SELECT acquired::text FROM lease.acquire('held', 'bob', '1 min')},
	'renew by another' => q{SELECT status FROM lease.renew('held', 'bob', 1, '1 min')},
	'renew with another epoch' => q{SELECT status FROM lease.renew('held', 'ann', 7, '1 min')},
	'renew of a free key' => q{SELECT status FROM lease.renew('free', 'ann', 2, '1 min')},
	'renew of a lapsed lease' => q{SELECT status FROM lease.renew('lapsed', 'ann', 1, '1 min')},
	'renew of an unknown key' => q{SELECT status FROM lease.renew('unknown', 'ann', 1, '1 min')},
	'release by another' => q{SELECT status FROM lease.release('held', 'bob', 1)},
	'release with another epoch' => q{SELECT status FROM lease.release('held', 'ann', 7)},
	'release of a free key' => q{SELECT status FROM lease.release('free', 'ann', 2)},
	'release of a lapsed lease' => q{SELECT status FROM lease.release('lapsed', 'ann', 1)},
	'release of an unknown key' => q{SELECT status FROM lease.release('unknown', 'ann', 1)},
	'inspect' => q{SELECT state FROM lease.inspect('held')});
my %answer = (
	'acquire of a held key' => 'false',
	'renew with another epoch' => 'epoch_mismatch',
	'renew of a lapsed lease' => 'lapsed',
	'release with another epoch' => 'epoch_mismatch',
	'release of a lapsed lease' => 'lapsed',
	'inspect' => 'held');

my $counters = q{
	SELECT sum(n_tup_ins), sum(n_tup_upd), sum(n_tup_del), sum(n_live_tup + n_dead_tup) FROM pg_stat_all_tables
	WHERE schemaname IN ('lease', 'pg_toast') AND relid IN ('lease.entry'::regclass, 'lease.epoch_floor'::regclass)};
my $state = 'SELECT xmin, xmax, ctid, * FROM lease.entry ORDER BY key';

my $session = session($node);
# the lapse has been written down, nothing is left to do for the sweeper
$node->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM lease.entry WHERE state = 'h' AND expires_at <= lease.now())}) or die 'not swept';
# hint bits, relation extents and what a session sets up are not what is measured
$session->value('VACUUM FREEZE lease.entry; CHECKPOINT');
$session->value($refused{$_}) foreach sort keys %refused;

my $counted = counted($node, $counters, $session);
my $rows = value($node, $state);
my $xid = $session->value('SELECT pg_snapshot_xmax(pg_current_snapshot())');

foreach my $what (sort keys %refused)
{
	my $wal = $session->value('SELECT pg_current_wal_insert_lsn()');
	my $expected = $answer{$what} // 'not_owner';

	# each call its own statement, every one in one transaction
	$session->answers(qq{
		DO \$\$
		DECLARE
			answer text;
		BEGIN
			FOR i IN 1..$calls LOOP
				$refused{$what} INTO answer;
				IF answer IS DISTINCT FROM '$expected' THEN RAISE EXCEPTION 'answered %', answer; END IF;
			END LOOP;
			IF pg_current_xact_id_if_assigned() IS NOT NULL THEN RAISE EXCEPTION 'has a transaction id'; END IF;
		END \$\$}, '', "$calls times $what: $expected, and no transaction id");
	cmp_ok($session->value("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '$wal')"), '<', 100_000, "$calls times $what: next to no WAL");
}

# the same as a client calls it: each call its own transaction
my $script = join('', map { "$refused{$_};\n" } sort keys %refused);
my $file = PostgreSQL::Test::Utils::tempdir() . '/refused.sql';
PostgreSQL::Test::Utils::append_to_file($file, $script);
my $wal = $session->value('SELECT pg_current_wal_insert_lsn()');
$node->command_ok([ 'pgbench', '-n', '-M', 'prepared', '-c', '2', '-t', $calls / 10, '-f', $file, 'postgres' ], 'refusals as single transactions of two clients');
cmp_ok($session->value("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '$wal')"), '<', 100_000, 'next to no WAL');

# A refusal beside an open transaction's change of the same key neither.
my $open = session($node);
$open->value("BEGIN; SELECT lease.acquire('unknown', 'cat', '1 hour')");
$session->answers(q{BEGIN; SELECT acquired FROM lease.acquire('unknown', 'bob', '1 min'); SELECT status FROM lease.renew('unknown', 'bob', 1, '1 min');
	SELECT pg_current_xact_id_if_assigned() IS NULL; COMMIT}, "f\nnot_owner\nt", 'refused beside an open change: no transaction id');
$open->answers('SELECT pg_current_xact_id_if_assigned() IS NULL; ROLLBACK', 't', 'an acquire writes nothing before its commit');
$open->quit;

is($session->value('SELECT pg_snapshot_xmax(pg_current_snapshot())'), $xid, 'no transaction id was used up');
is(counted($node, $counters, $session), $counted, 'tuple counters are unchanged');
is(value($node, $state), $rows, 'every row is the very same');
$session->quit;
$node->stop;

done_testing();
