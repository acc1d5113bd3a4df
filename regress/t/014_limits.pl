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
my ($a, $c) = map { session($node) } 1 .. 2;

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
$a->answers(q{SAVEPOINT r; SELECT acquired FROM lease.acquire('held', 'a', '1 hour'); ROLLBACK TO r}, 'f', 'nor does a refusal');

# There is room for as many keys as the setting says; each session fills half until one finds no more.
my $fill = sub {
	my ($name) = @_;
	return qq{
		DO \$\$
		BEGIN
			FOR i IN 1..32 LOOP
				BEGIN
					PERFORM lease.acquire('$name ' || i, '$name', '1 hour');
				EXCEPTION WHEN out_of_memory THEN EXIT;
				END;
			END LOOP;
		END \$\$};
};
my (@more, $full);
until ($full)
{
	my $session = session($node);
	push @more, $session;
	$session->value('BEGIN;' . $fill->('more ' . @more));
	$full = $session->value(q{SELECT count(*) < 32 FROM lease.claims WHERE pid = pg_backend_pid()}) eq 't';
	die 'there is no end to it' if @more > 20;
}
row_is($node, 'SELECT count(*) FROM lease.claims', '64', 'all sessions together: as many as the setting says');
full($c, 'c');
$c->answers(q{SELECT acquired FROM lease.acquire('held', 'c', '1 hour')}, 'f', 'full: refusals go on');
$c->answers(q{SELECT acquired FROM lease.acquire('a 1', 'c', '1 hour')}, 'f', 'full: refusals over a claim, too');
is($c->run(q{SELECT status FROM lease.renew('held', 'ann', 1, '1 hour')})->{state}, '53200', 'full: a renewal needs room');
is($c->run(q{SELECT status FROM lease.release('held', 'ann', 1)})->{state}, '53200', 'full: a release needs room');
row_is($node, q{SELECT state_of('held'), state_of('one more')}, 'held ann 1|free 0', 'full: looking goes on, and nothing was changed');
$more[0]->value('ROLLBACK');
$c->answers(q{SELECT acquired FROM lease.acquire('one more', 'c', '1 hour')}, 't', 'room again after a rollback');
$more[0]->value('BEGIN;' . $fill->('more 1'));
$a->answers('COMMIT', '', 'a transaction at its limit commits');
$c->answers(q{SELECT status FROM lease.renew('held', 'ann', 1, '1 hour')}, 'ok', 'room again after a commit');
row_is($node, q{SELECT count(*) FROM lease.leases WHERE key LIKE 'a %' AND state = 'held'}, '32', 'with all its keys');
$_->quit foreach @more;
wait_until_gone($node, $_->pid) foreach @more;

# Savepoints give back what was taken under them.
$a->value(q{BEGIN; SAVEPOINT s; SELECT count(*) FROM generate_series(1, 32) i, LATERAL lease.acquire('s ' || i, 'a', '1 hour'); ROLLBACK TO s});
$c->answers(q{BEGIN; SELECT count(*) FROM generate_series(1, 32) i, LATERAL lease.acquire('c ' || i, 'c', '1 hour') WHERE acquired; ROLLBACK}, '32', 'room again after a rollback to a savepoint');
$a->value('COMMIT');
my @keys = map { "SELECT acquired FROM lease.acquire('turn $_', 'a', '1 hour')" } 1 .. 200;
$a->answers(join(';', @keys), join("\n", ('t') x 200), 'two hundred transactions, one after the other');
row_is($node, 'SELECT open_claims()', '0', 'no claim is left');
$_->quit foreach $a, $c;
$node->stop;

done_testing();
