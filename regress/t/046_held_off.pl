# A sweeper leaves for a command that needs its database to itself, but not for one that the role has no right to, and stays out until
# the last of several such commands is over.
# Proves: I5 (lapses are written down whatever a stranger does), D4

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $node = lease_cluster('held_off');
value($node, 'CREATE ROLE stranger; CREATE ROLE maker CREATEDB; CREATE ROLE master CREATEDB');
value($node, 'CREATE DATABASE used OWNER master');
create_lease($node, 'used');
value($node, q{SELECT lease.acquire('k', 'ann', '1 hour')}, 'used');
my $status = q{SELECT status FROM lease.sweepers WHERE database = 'used'};
sub runs { return $node->poll_query_until('postgres', "$status AND status = 'running'", 'running'); }
runs() or die 'no sweeper';

my $session = session($node);
foreach my $case (
	[ 'stranger', 'ALTER DATABASE used RENAME TO other', '42501' ],
	[ 'stranger', 'DROP DATABASE used', '25001' ],
	[ 'stranger', 'CREATE DATABASE copy TEMPLATE used', '25001' ],
	[ 'stranger', 'ALTER DATABASE used SET TABLESPACE pg_default', '25001' ],
	[ 'maker', 'CREATE DATABASE copy TEMPLATE used', '25001' ])
{
	my ($role, $command, $state) = @$case;
	$session->value("SET ROLE $role; BEGIN; SAVEPOINT s");
	is($session->run($command)->{state}, $state, "$role: $command: $state");
	$session->value('ROLLBACK TO s');
	value($node, 'SELECT pg_sleep(0.1)');
	row_is($node, $status, 'running', "$role: $command: the sweeper stays");
	$session->value('ROLLBACK; RESET ROLE');
}

# Two commands at once: the end of the later one is not the end of the first. A launcher that has started the sweeper of a database made
# meanwhile has seen to this one as well.
my ($first, $second) = map { session($node) } 1 .. 2;
$first->value('BEGIN; ALTER DATABASE used RENAME TO renamed');
$node->poll_query_until('postgres', $status, 'held off') or die 'the sweeper stays';
$second->value(q{SET lock_timeout = '100ms'});
sub stays_out
{
	my ($name) = @_;
	value($node, "CREATE DATABASE meanwhile TEMPLATE template0");
	create_lease($node, 'meanwhile');
	$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM lease.sweepers WHERE database = 'meanwhile' AND status = 'running'}) or die 'no sweeper';
	row_is($node, $status, 'held off', $name);
	value($node, "DROP DATABASE meanwhile");
	return;
}
foreach my $round (1, 2)
{
	is($second->run('CREATE DATABASE copy TEMPLATE used')->{state}, '55P03', "round $round: another one waits, and gives up");
	stays_out("round $round: the sweeper stays out for the first");
}
$first->value('ROLLBACK');
ok(runs(), 'and comes back at its end');
# The other way round: what the first needed is over, though its transaction is not; the second's goes on when it is.
$first->value('BEGIN; SAVEPOINT s');
is($first->run('ALTER DATABASE used SET TABLESPACE pg_default')->{state}, '25001', 'a command that fails, in a transaction that stays open');
$first->value('ROLLBACK TO s');
$second->value('BEGIN; ALTER DATABASE used RENAME TO renamed');
stays_out('the sweeper stays out for both');
$first->value('ROLLBACK');
stays_out('the sweeper stays out for the second');
$second->value('ROLLBACK');
ok(runs(), 'and comes back at its end');
# Many of them.
my @many = map { session($node, setup => q{SET lock_timeout = '100ms'}) } 1 .. 12;
$_->value('BEGIN; SAVEPOINT s') foreach @many;
is($_->run('ALTER DATABASE used SET TABLESPACE pg_default')->{state}, '25001', 'one of many') foreach @many;
my $last = pop @many;
$_->value('ROLLBACK') foreach @many;
stays_out('the sweeper stays out for the last of many');
$last->value('ROLLBACK');
ok(runs(), 'and comes back at its end');
$_->quit foreach $first, $second, $last, @many;

# The owner, who is no superuser, gets what he asks for.
my $server = session($node);
$server->value('SET ROLE master');
$server->answers('ALTER DATABASE used RENAME TO renamed', '', 'the owner renames it');
$server->answers('CREATE DATABASE copy TEMPLATE renamed', '', 'the owner copies it');
$server->answers('DROP DATABASE renamed', '', 'the owner drops it');
undef $_ foreach $session, $server;
$node->stop;

done_testing();
