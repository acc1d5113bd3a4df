# A sweeper leaves for a command that needs its database to itself, but not for one that the role has no right to.
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

# The owner, who is no superuser, gets what he asks for.
my $server = session($node);
$server->value('SET ROLE master');
$server->answers('ALTER DATABASE used RENAME TO renamed', '', 'the owner renames it');
$server->answers('CREATE DATABASE copy TEMPLATE renamed', '', 'the owner copies it');
$server->answers('DROP DATABASE renamed', '', 'the owner drops it');
undef $_ foreach $session, $server;
$node->stop;

done_testing();
