# pg_lease.max_claims: an open transaction that would change one key more than there is room for gets 53200 and a hint, and changes
# nothing; one session may use half; the room is there again when its user is gone.
# Proves: I10, I11, failure row "Resource exhaustion"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $node = lease_cluster('limits', conf => 'pg_lease.max_claims = 64');
row_is($node, 'SHOW pg_lease.max_claims', '64', 'the setting');
$node->safe_psql('postgres', q{SELECT lease.acquire('held', 'ann', '1 hour')});
my ($a, $b, $c) = map { session($node) } 1 .. 3;

sub full
{
	my ($session, $name) = @_;
	my $answer = $session->run("SELECT lease.acquire('one more', '$name', '1 hour')");
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is($answer->{state}, '53200', "$name: no room: 53200");
	like($answer->{hint} // '', qr/pg_lease\.max_claims/, "$name: the hint names the setting");
	return;
}

$a->answers(q{BEGIN; SELECT count(*) FROM generate_series(1, 32) i, LATERAL lease.acquire('a ' || i, 'a', '1 hour') WHERE acquired}, '32', 'one session: half of it');
$a->value('SAVEPOINT s');
full($a, 'a');
$a->answers(q{ROLLBACK TO s; SELECT acquired FROM lease.acquire('a 1', 'a', '1 hour')}, 't', 'a key it has already needs no more room');
$a->answers(q{SELECT acquired FROM lease.acquire('held', 'a', '1 hour')}, 'f', 'nor does a refusal');
$b->answers(q{BEGIN; SELECT count(*) FROM generate_series(1, 32) i, LATERAL lease.acquire('b ' || i, 'b', '1 hour') WHERE acquired}, '32', 'another one: the other half');
full($c, 'c');
$c->answers(q{SELECT acquired FROM lease.acquire('held', 'c', '1 hour')}, 'f', 'full: refusals go on');
$c->answers(q{SELECT acquired FROM lease.acquire('a 1', 'c', '1 hour')}, 'f', 'full: refusals over a claim, too');
is($c->run(q{SELECT status FROM lease.renew('held', 'ann', 1, '1 hour')})->{state}, '53200', 'full: a renewal needs room');
is($c->run(q{SELECT status FROM lease.release('held', 'ann', 1)})->{state}, '53200', 'full: a release needs room');
row_is($node, q{SELECT state_of('held'), state_of('one more')}, 'held ann 1|free 0', 'full: looking goes on, and nothing was changed');
row_is($node, 'SELECT count(*) FROM lease.claims', '64', 'as many claims as there may be');
$b->value('ROLLBACK');
$c->answers(q{SELECT acquired FROM lease.acquire('one more', 'c', '1 hour')}, 't', 'room again after a rollback');
$b->value(q{BEGIN; SELECT count(*) FROM generate_series(1, 32) i, LATERAL lease.acquire('b ' || i, 'b', '1 hour')});
$a->answers('COMMIT', '', 'a transaction at its limit commits');
$c->answers(q{SELECT status FROM lease.renew('held', 'ann', 1, '1 hour')}, 'ok', 'room again after a commit');
row_is($node, q{SELECT count(*) FROM lease.leases WHERE key LIKE 'a %' AND state = 'held'}, '32', 'with all its keys');

# Savepoints give back what was taken under them.
$a->value(q{BEGIN; SAVEPOINT s; SELECT count(*) FROM generate_series(1, 32) i, LATERAL lease.acquire('s ' || i, 'a', '1 hour'); ROLLBACK TO s});
$c->answers(q{BEGIN; SELECT count(*) FROM generate_series(1, 32) i, LATERAL lease.acquire('c ' || i, 'c', '1 hour') WHERE acquired; ROLLBACK}, '32', 'room again after a rollback to a savepoint');
$a->value('COMMIT');
$b->value('ROLLBACK');
my @keys = map { "SELECT acquired FROM lease.acquire('turn $_', 'a', '1 hour')" } 1 .. 200;
$a->answers(join(';', @keys), join("\n", ('t') x 200), 'two hundred transactions, one after the other');
row_is($node, 'SELECT count(*) FROM lease.claims', '0', 'no claim is left');
$_->quit foreach $a, $b, $c;
$node->stop;

done_testing();
