# What the table's owner and DDL can do to an open transaction's lease changes: it commits on what it decided on, or fails with an
# error that says why; an idle transaction is in nobody's way.
# Proves: I6, I10, I11, failure row "Holder hangs / network partitions (session alive)"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $node = lease_cluster('own_table');
my ($a, $b) = map { session($node) } 1 .. 2;
my $log_at = -s $node->logfile;

# An error at COMMIT that is clear: not an internal one, and the session goes on.
sub fails_clearly
{
	my ($session, $name, @states) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $answer = $session->run('COMMIT');

	if (@states) { like($answer->{state}, qr/^(@{[ join '|', @states ]})$/, "$name: the COMMIT fails with @states"); }
	else { like($answer->{state}, qr/^(?!00|XX)/, "$name: the COMMIT fails, not with an internal error"); }
	note("$name: $answer->{error}");
	$session->answers('SELECT 1', '1', "$name: the session goes on");
	return;
}

# --- An idle transaction with pending changes holds no lock on the table: DDL and maintenance of others pass.
$a->value(q{SELECT lease.acquire('held', 'ann', '1 hour')});
$a->value(q{BEGIN; SELECT lease.renew('held', 'ann', 1, '2 hours'); SELECT lease.acquire('new', 'ann', '1 hour')});
$b->answers(q{SET lock_timeout = '1s'; BEGIN; LOCK TABLE lease.entry IN ACCESS EXCLUSIVE MODE; ROLLBACK}, '', 'no lock on the table while idle');
row_is($node, 'SELECT count(*) FROM pg_locks WHERE pid = ' . $a->pid . q{ AND relation IN (SELECT oid FROM pg_class WHERE relnamespace = 'lease'::regnamespace)},
	'0', 'none at all on anything of the schema');
$b->answers('VACUUM FULL lease.entry; REINDEX TABLE lease.entry; CLUSTER lease.entry USING entry_pkey; ANALYZE lease.entry', '', 'the table is rewritten meanwhile');
$a->answers('COMMIT', '', 'and the changes are committed all the same');
row_is($node, q{SELECT state_of('held'), state_of('new')}, 'held ann 1|held ann 1', 'to the right rows');
row_is($node, q{SELECT remaining > '1 hour' FROM lease.inspect('held')}, 't', 'the renewal is there');

# --- A row locked by hand: 55P03, not a wait; a mere key share is in nobody's way.
$b->value(q{BEGIN; SELECT * FROM lease.entry WHERE key = 'held' FOR UPDATE});
$a->answers(q{SELECT status FROM lease.renew('held', 'ann', 1, '2 hours')}, '55P03', 'a row locked FOR UPDATE: 55P03');
$a->answers(q{SELECT acquired FROM lease.acquire('held', 'bob', '1 hour')}, 'f', 'a row locked FOR UPDATE: refusals need no lock');
$a->answers(q{SELECT state_of('held')}, 'held ann 1', 'a row locked FOR UPDATE: inspect needs none either');
$b->value('ROLLBACK');
$a->answers(q{SELECT status FROM lease.renew('held', 'ann', 1, '2 hours')}, 'ok', 'unlocked: ok');
$b->value(q{BEGIN; SELECT * FROM lease.entry WHERE key = 'held' FOR KEY SHARE});
$a->answers(q{SELECT status FROM lease.renew('held', 'ann', 1, '2 hours')}, 'ok', 'a row locked FOR KEY SHARE: ok');
$b->value('COMMIT');
$a->answers(q{SELECT status FROM lease.renew('held', 'ann', 1, '2 hours')}, 'ok', 'a row that was locked once: ok');

# --- The row changed by hand between the call and the commit: 40001.
foreach my $case (
	[ 'epoch' => 'epoch = epoch + 1' ], [ 'owner' => q{owner = 'bob'} ], [ 'expiry' => q{expires_at = expires_at + interval '1 s'} ])
{
	my ($what, $set) = @$case;
	$a->value(qq{SELECT lease.acquire('by hand: $what', 'ann', '1 hour')});
	$a->value(qq{BEGIN; SELECT lease.renew('by hand: $what', 'ann', 1, '2 hours')});
	$b->value(qq{UPDATE lease.entry SET $set WHERE key = 'by hand: $what'});
	fails_clearly($a, "$what changed by hand", '40001');
	row_is($node, "SELECT remaining < '61 min' FROM lease.inspect('by hand: $what')", 't', "$what changed by hand: that stands");
}
$a->value(q{SELECT lease.acquire('deleted', 'ann', '1 hour'); BEGIN; SELECT lease.renew('deleted', 'ann', 1, '2 hours')});
$b->value(q{DELETE FROM lease.entry WHERE key = 'deleted'});
fails_clearly($a, 'row deleted by hand', '40001');
$a->value(q{BEGIN; SELECT lease.acquire('planted', 'ann', '2 hours')});
$b->value(q{INSERT INTO lease.entry SELECT (e).* FROM (SELECT jsonb_populate_record(e, '{"key": "planted"}') AS e FROM lease.entry e WHERE key = 'held') x});
fails_clearly($a, 'row planted by hand', '40001');
# a mere rewrite of the same content is no change
$a->value(q{BEGIN; SELECT lease.renew('held', 'ann', 1, '3 hours')});
$b->value(q{UPDATE lease.entry SET epoch = epoch WHERE key = 'held'});
$a->answers('COMMIT', '', 'row rewritten as it was: no conflict');
row_is($node, q{SELECT remaining > '2 hours' FROM lease.inspect('held')}, 't', 'and the renewal is there');

# --- Emptied by the same transaction: the lease it was decided on is gone; a new key needs none.
$a->value(q{BEGIN; SELECT lease.renew('held', 'ann', 1, '3 hours'); TRUNCATE lease.entry});
fails_clearly($a, 'TRUNCATE after a renewal', '40001');
row_is($node, q{SELECT state_of('held')}, 'held ann 1', 'and the table is what it was');
$a->value(q{BEGIN; SELECT lease.acquire('after truncate', 'ann', '1 hour'); TRUNCATE lease.entry});
$a->answers('COMMIT', '', 'TRUNCATE after an acquire of a new key');
row_is($node, 'SELECT key, state, epoch FROM lease.leases', 'after truncate|held|1', 'which is the only one there is then');

# --- Another shape: refused, in the same transaction, later, and at the call. Nothing crashes, nothing is written.
$a->value(q{BEGIN; SELECT lease.acquire('shape', 'ann', '1 hour'); ALTER TABLE lease.entry ADD COLUMN more int});
fails_clearly($a, 'a column added after the call');
$a->value(q{BEGIN; SELECT lease.acquire('shape', 'ann', '1 hour'); ALTER TABLE lease.entry DROP CONSTRAINT entry_pkey});
fails_clearly($a, 'the primary key dropped after the call');
$a->value(q{BEGIN; SELECT lease.acquire('shape', 'ann', '1 hour')});
$b->value('ALTER TABLE lease.entry ADD COLUMN more int');
fails_clearly($a, 'a column added by another session');
my $answer = $a->run(q{SELECT acquired FROM lease.acquire('shape', 'ann', '1 hour')});
like($answer->{state}, qr/^(?!00|XX)/, 'a column more: the call says so');
$b->run('ALTER TABLE lease.entry DROP COLUMN more');
like($a->run(q{SELECT acquired FROM lease.acquire('shape', 'ann', '1 hour')})->{state}, qr/^(?!XX)/, 'a dropped column: no internal error');

# --- The extension dropped.
$a->value('DROP EXTENSION pg_lease');
$node->safe_psql('postgres', 'DROP FUNCTION state_of, open_claims');
create_lease($node);
foreach my $session ($a, $b)
{
	$session->answers(q{SELECT acquired, epoch FROM lease.acquire('anew', 'ann', '1 hour')}, 't|' . ($session == $a ? 1 : 2), 'made anew: sessions of before use the new one');
}
$a->value(q{BEGIN; SELECT lease.acquire('dropped', 'ann', '1 hour'); DROP EXTENSION pg_lease});
fails_clearly($a, 'DROP EXTENSION after a call');
row_is($node, q{SELECT state_of('anew'), state_of('dropped')}, 'held ann 2|free 0', 'the extension is still there, the change is not');
$a->value(q{BEGIN; SELECT lease.renew('anew', 'ann', 2, '2 hours'); DROP EXTENSION pg_lease; CREATE EXTENSION pg_lease});
fails_clearly($a, 'DROP and CREATE EXTENSION after a renewal', '40001');
$a->value(q{BEGIN; SELECT lease.acquire('dropped', 'ann', '1 hour')});
$b->value('DROP EXTENSION pg_lease');
fails_clearly($a, 'DROP EXTENSION by another session');
$a->answers(q{SELECT lease.acquire('dropped', 'ann', '1 hour')}, '3F000', 'no extension, no function');
$a->answers(q{BEGIN; CREATE EXTENSION pg_lease; SELECT acquired, epoch FROM lease.acquire('in one', 'ann', '1 hour'); COMMIT}, 't|1', 'CREATE EXTENSION and a call in one transaction');
$a->answers(q{BEGIN; DROP EXTENSION pg_lease; CREATE EXTENSION pg_lease; SELECT acquired, epoch FROM lease.acquire('in one', 'ann', '1 hour'); COMMIT}, 't|1', 'DROP, CREATE and a call in one transaction');
row_is($node, q{SELECT state_of('in one')}, 'held ann 1', 'is kept');
row_is($node, 'SELECT open_claims()', '0', 'no claim is left of all this');

# --- Two databases: keys of one are not keys of the other, nor their claims.
$node->safe_psql('postgres', 'CREATE DATABASE other');
create_lease($node, 'other');
my $o = session($node, dbname => 'other');
$a->value(q{BEGIN; SELECT lease.acquire('shared', 'ann', '1 hour')});
$o->answers(q{SELECT state_of('shared'), i.in_flight FROM lease.inspect('shared') i}, 'free 0|f', 'a key in flight in one database is not in the other');
$o->answers(q{SELECT open_claims()}, '0', 'nor is its claim shown');
$o->answers(q{SELECT acquired, epoch FROM lease.acquire('shared', 'bob', '1 hour')}, 't|1', 'and can be had there');
$a->answers('COMMIT', '', 'as here');
$o->quit;
$node->safe_psql('postgres', 'DROP DATABASE other');

unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile, $log_at), qr/PANIC:|terminated by signal/, 'no server process fell');
$_->quit foreach $a, $b;
$node->stop;

done_testing();
