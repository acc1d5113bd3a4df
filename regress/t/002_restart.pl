# A clean restart: every key is exactly what it was; what expired meanwhile has lapsed; nobody repairs anything.
# Proves: I9, I5, D1, D2, D3, R1, R2, R3, failure row "Server restart (clean)"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $node = lease_cluster('restart');
my $columns = 'key, state, owner, epoch, expires_at, ttl, granted_at, renewed_at, granted_to, payload';

$node->safe_psql('postgres', $_) foreach (
	"SELECT lease.acquire('held', 'ann', '1 hour', NULL, '{\"port\": 1}')",
	"SELECT lease.renew('held', 'ann', 1, '2 hours')",
	"SELECT lease.acquire('again', 'ann', '1 hour') FROM generate_series(1, 3)",
	"SELECT lease.acquire('free', 'ann', '1 hour')",
	"SELECT lease.release('free', 'ann', 1)",
	"SELECT lease.acquire('lapsed', 'ann', '1 s')",
	"SELECT lease.acquire('undone', 'ann', '1 hour')",
	"BEGIN; SELECT lease.release('undone', 'ann', 1); ROLLBACK",
	'SELECT pg_sleep(1)');
my $before = value($node, "SELECT $columns FROM lease.leases ORDER BY key");
my $now = value($node, 'SELECT lease.now()');

# An open transaction ends with the server, and all it would have done.
my $open = session($node);
$open->value("BEGIN; SELECT lease.acquire('open', 'ann', '1 hour'); SELECT lease.release('held', 'ann', 1)");
row_is($node, 'SELECT open_claims()', '2', 'two keys are in flight');

foreach my $round (1 .. 2)
{
	$node->restart;
	row_is($node, "SELECT $columns FROM lease.leases ORDER BY key", $before, "restart $round: every key is what it was (D1, I9)");
	row_is($node, 'SELECT open_claims()', '0', "restart $round: no claim is left");
	row_is($node, "SELECT state_of('open')", 'free 0', "restart $round: an open transaction's acquire is gone");
	row_is($node, "SELECT lease.now() > '$now'", 't', "restart $round: lease time went on");
}
eval { $open->quit };

# The countdown goes on, and former holders go on with it.
my $read_at = value($node, 'SELECT lease.now()');
my $left = value($node, "SELECT remaining FROM lease.inspect('held')");
row_is($node, "SELECT remaining < '$left', remaining >= interval '$left' - (lease.now() - '$read_at') FROM lease.inspect('held')", 't|t',
	'the held key goes on counting down (R1)');
row_is($node, "SELECT status FROM lease.renew('held', 'ann', 1, '1 hour')", 'ok', 'its holder renews (R2)');
row_is($node, "SELECT acquired FROM lease.acquire('held', 'bob', '1 hour')", 'f', 'and nobody else gets it');
row_is($node, "SELECT status FROM lease.renew('lapsed', 'ann', 1, '1 hour')", 'lapsed', 'a lease that had lapsed has still lapsed');

# Epochs go on from where they were.
row_is($node, "SELECT acquired, epoch FROM lease.acquire('again', 'ann', '1 hour')", 't|4', 'epochs go on: held (D2)');
row_is($node, "SELECT acquired, epoch FROM lease.acquire('free', 'bob', '1 hour')", 't|3', 'epochs go on: free (D2)');
row_is($node, "SELECT acquired, epoch FROM lease.acquire('lapsed', 'bob', '1 hour')", 't|2', 'epochs go on: lapsed (D2)');

# What expires while the server is down has lapsed when it is back.
$node->safe_psql('postgres', "SELECT lease.acquire(key, 'ann', '2 s') FROM unnest('{down 1,down 2,down 3}'::text[]) key");
row_is($node, "SELECT state_of('down 1')", 'held ann 1', 'held before the stop');
$node->stop;
sleep 2;
$node->start;
row_is($node, "SELECT acquired, epoch FROM lease.acquire('down 1', 'bob', '1 hour')", 't|2', 'expired while the server was down: had at the first call (D3, R1)');
row_is($node, "SELECT status FROM lease.renew('down 2', 'ann', 1, '1 hour')", 'lapsed', 'its former holder is told so (R2)');
row_is($node, "SELECT acquired, epoch FROM lease.acquire('down 2', 'ann', '1 hour')", 't|2', 'and acquires anew (R2)');
row_is($node, "SELECT state_of('down 3')", 'lapsed 1', 'it shows as lapsed');
$node->stop;

done_testing();
