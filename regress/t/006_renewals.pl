# A hundred thousand renewals of a thousand keys: HOT updates, a table that does not grow, an index that is sound.
# Proves: I8 (none of them changes an epoch or an owner), I9 (what is kept is one row per key)

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $keys = 1000;
my $clients = 4;
my $renewals = 100_000;
my $node = lease_cluster('renewals');
$node->safe_psql('postgres', 'CREATE EXTENSION amcheck');

my $counters = q{SELECT n_tup_ins, n_tup_upd, n_tup_hot_upd FROM pg_stat_all_tables WHERE relid = 'lease.entry'::regclass};
sub sound
{
	my ($when) = @_;
	row_is($node, q{SELECT count(*) FROM verify_heapam('lease.entry')}, '0', "$when: the table is sound");
	row_is($node, q{SELECT count(bt_index_parent_check(indexrelid, true, true)) FROM pg_index WHERE indrelid = 'lease.entry'::regclass}, '1', "$when: its index is sound");
	return;
}

$node->safe_psql('postgres', "SELECT count(*) FROM generate_series(1, $keys) i, LATERAL lease.acquire('key ' || i, 'owner', '1 day', NULL, to_jsonb('payload ' || i))");
sound('filled');
my $size = value($node, q{SELECT pg_relation_size('lease.entry')});
my $index_size = value($node, q{SELECT pg_relation_size(indexrelid) FROM pg_index WHERE indrelid = 'lease.entry'::regclass});
my ($ins, $upd, $hot) = split /\|/, counted($node, $counters);

my $file = PostgreSQL::Test::Utils::tempdir() . '/renew.sql';
PostgreSQL::Test::Utils::append_to_file($file, qq{
\\set k random(1, $keys)
SELECT 1 / (status = 'ok')::int FROM lease.renew('key ' || :k, 'owner', 1, '1 day');
});
$node->command_ok([ 'pgbench', '-n', '-M', 'prepared', '-c', $clients, '-t', $renewals / $clients, '-f', $file, 'postgres' ],
	"$renewals renewals, each its own transaction, all of them ok");

my ($ins2, $upd2, $hot2) = split /\|/, counted($node, $counters);
is($ins2, $ins, 'nothing was inserted');
# two clients that meet on one key wait for each other, they do not fail: each renewal is an update
is($upd2 - $upd, $renewals, 'each renewal is one update');
cmp_ok($hot2 - $hot, '>=', 0.99 * $renewals, 'at least 99 % of them HOT');
cmp_ok(value($node, q{SELECT pg_relation_size('lease.entry')}), '<=', 2 * $size, 'the table is at most twice its first size');
cmp_ok(value($node, q{SELECT pg_relation_size(indexrelid) FROM pg_index WHERE indrelid = 'lease.entry'::regclass}), '<=', 2 * $index_size, 'so is its index');
row_is($node, q{SELECT count(*), count(DISTINCT key), min(epoch), max(epoch), min(owner), max(owner), count(payload) FROM lease.leases WHERE state = 'held'},
	"$keys|$keys|1|1|owner|owner|$keys", 'every key is still held by its owner under its epoch (I8)');
sound('renewed');

# Many renewals of one key in one transaction are one update.
($ins, $upd, $hot) = split /\|/, counted($node, $counters);
row_is($node, q{SELECT status, count(*) FROM generate_series(1, 1000) i, LATERAL lease.renew('key 1', 'owner', 1, make_interval(hours => i)) GROUP BY 1}, 'ok|1000', 'renewed a thousand times in one statement');
($ins2, $upd2, $hot2) = split /\|/, counted($node, $counters);
is($upd2 - $upd, 1, 'written once');
row_is($node, q{SELECT remaining > '999 hours' FROM lease.inspect('key 1')}, 't', 'the last one counts');
$node->stop;

done_testing();
