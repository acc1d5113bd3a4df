# Restart, crash in the middle of a sweep, standby and promotion, binary upgrade: what lapsed meanwhile is swept without anybody's
# call, no worker runs where it must not, and no epoch goes back.
# With the library of `make test-points`.
# Proves: I2, I9, D1, D2, D3, R1, R3, failure row "Server crash (unclean)", failure row "Server restart (clean)",
# failure row "Primary/replica failover"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use File::Spec;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

die "PG_LEASE_TEST_LIBDIR must name the folder of the library with test points (make installcheck sets it)\n"
  unless -e ($ENV{PG_LEASE_TEST_LIBDIR} // '') . '/pg_lease.so';

sub swept
{
	my ($node, $where, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	# the table alone: no call of ours that could tell the launcher
	return ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM lease.entry WHERE state = 'h' AND $where"), $name);
}

my $workers = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pg_lease%'};
my $node = lease_cluster('restarts', conf => "dynamic_library_path = '$ENV{PG_LEASE_TEST_LIBDIR}:\$libdir'\nshared_preload_libraries = '$ENV{PG_LEASE_TEST_LIBDIR}/pg_lease'\n");

# --- Leases that end while the server is down, in three databases. There are also one that does not let anybody in and one whose
# removal was interrupted; the last with leases is looked into after them.
$node->safe_psql('postgres', "CREATE DATABASE $_ TEMPLATE template0") foreach ('middle', 'closed', 'half_dropped');
create_lease($node, 'middle');
$node->safe_psql('postgres', q{ALTER DATABASE closed ALLOW_CONNECTIONS false; UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'half_dropped'});
$node->safe_psql('postgres', 'CREATE DATABASE last TEMPLATE template0');
create_lease($node, 'last');
foreach my $mode ('fast', 'immediate')
{
	$node->safe_psql('postgres', q{SELECT lease.acquire('over', 'ann', '900 ms'), lease.acquire('held', 'ann', '1 hour')});
	$node->safe_psql($_, q{SELECT lease.acquire('over', 'ann', '900 ms')}) foreach ('middle', 'last');
	my $epochs = value($node, q{SELECT key, epoch FROM lease.entry WHERE key IN ('over', 'held') ORDER BY key});
	$node->stop($mode);
	sleep 1;
	my $log_at = -s $node->logfile;
	$node->start;
	swept($node, "key = 'over'", "$mode: a lease that ended while the server was down is swept, without a call (D3)");
	row_is($node, q{SELECT key, epoch FROM lease.entry WHERE key IN ('over', 'held') ORDER BY key}, $epochs, "$mode: epochs are what they were (D2)");
	row_is($node, q{SELECT state_of('held') LIKE 'held ann %'}, 't', "$mode: a held lease is held (R1)");
	ok($node->poll_query_until('last', q{SELECT state = 'l' FROM lease.entry WHERE key = 'over'}), "$mode: so is one of the last database");
	# of three sweepers, one after the other; a database that was forgotten until somebody looks again takes ten seconds
	row_is($node, q{SELECT count(*), max(backend_start) - min(backend_start) < '10 s' FROM pg_stat_activity WHERE backend_type = 'pg_lease sweeper'}, '3|t', "$mode: and no database waits for another's turn");
	my $refused = qr/FATAL: .*(?:invalid database|not currently accepting connections)/;
	unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile, $log_at), $refused, "$mode: nobody knocks at the door of those that let nobody in");
}

# --- The server falls over in the middle of a sweep.
foreach my $point ('sweep', 'before-seal', 'sealed', 'written')
{
	my $gate = session($node);
	$gate->value("SELECT pg_advisory_lock(125534, hashtext('$point'))");
	$node->safe_psql('postgres', qq{SELECT lease.acquire('$point', 'ann', '4 s')});
	$node->append_conf('postgresql.conf', "pg_lease.test_points = '$point'");
	$node->reload;
	ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.backend_type = 'pg_lease sweeper'}), "$point: the sweeper is in the middle of a sweep");
	row_is($node, "SELECT state_of('$point')", 'lapsed 1', "$point: the lease has lapsed, for who looks");
	$node->append_conf('postgresql.conf', "pg_lease.test_points = ''");
	$node->stop('immediate');
	$gate->quit;
	$node->start;
	swept($node, "key = '$point'", "$point: a crash there: swept after the start (R3)");
	row_is($node, "SELECT concat_ws(' ', state, owner, epoch) FROM lease.entry WHERE key = '$point'", 'l ann 1', "$point: as it would have been (D1)");
	row_is($node, 'SELECT count(*) FROM lease.claims', '0', "$point: no claim is left");
}
# sealed, a lapse cannot be passed by, for as long as its commit takes
{
	my ($gate, $a, $b) = map { session($node) } 1 .. 3;
	$gate->value("SELECT pg_advisory_lock(125534, hashtext('sealed'))");
	$a->value(q{SELECT lease.acquire('in hand', 'ann', '4 s')});
	$node->append_conf('postgresql.conf', q{pg_lease.test_points = 'sealed'});
	$node->reload;
	$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.backend_type = 'pg_lease sweeper'}) or die;
	$b->value(q{SET pg_lease.test_points = ''});
	$b->answers(q{SELECT acquired FROM lease.acquire('in hand', 'bob', '1 hour')}, 'f', 'a sealed lapse: denied after 1 s');
	$b->send(q{SELECT acquired, epoch FROM lease.acquire('in hand', 'bob', '1 hour', '1 min')});
	wait_for_wait($node, $b);
	$gate->value('SELECT pg_advisory_unlock_all()');
	$b->answers(undef, 't|2', 'and had once it is written');
	$node->append_conf('postgresql.conf', q{pg_lease.test_points = ''});
	$node->reload;
	$_->quit foreach ($gate, $a, $b);
}
$node->stop;

# --- A standby has no worker and writes nothing; promoted it has, and goes on with the epochs that were told.
my $primary = lease_cluster('leader', init => [ allows_streaming => 1 ]);
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('follower');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;
$primary->safe_psql('postgres', q{SELECT lease.acquire('held', 'ann', '1 hour'), lease.acquire('over', 'ann', '3 s')});
$primary->wait_for_catchup($standby);
row_is($standby, $workers, '0', 'a standby has no worker');
row_is($standby, q{SELECT count(*) FROM lease.sweepers WHERE pid IS NOT NULL}, '0', 'lease.sweepers says so');
is(session($standby)->run(q{SELECT lease.acquire('held', 'bob', '1 hour')})->{state}, '25006', 'and changes nothing');

# epochs that a client was told, until the primary falls over
$primary->append_conf('postgresql.conf', "synchronous_standby_names = '*'\nsynchronous_commit = remote_write");
$primary->reload;
$primary->poll_query_until('postgres', q{SELECT sync_state = 'sync' FROM pg_stat_replication}) or die 'the standby is not synchronous';
my @load;
foreach my $client (1 .. 3)
{
	my ($in, $out) = (join('', map { "SELECT epoch FROM lease.acquire('load $client', 'ann', '1 hour');\n" } 1 .. 20_000), '');
	push @load, { out => \$out, run => IPC::Run::start([ $primary->installed_command('psql'), '-XAtq', '-d', $primary->connstr('postgres') ], '<', \$in, '>', \$out, '2>', \my $err) };
}
my $enough = 0;
foreach (1 .. 1000)
{
	$_->{run}->pump_nb foreach @load;
	last if ($enough = !grep { (() = ${ $_->{out} } =~ /\n/g) < 200 } @load);
	select undef, undef, undef, 0.02;
}
ok($enough, 'there is load');
$primary->stop('immediate');
foreach (@load) { eval { $_->{run}->finish }; }
my $promoted_at = value($standby, 'SELECT lease.now()');
$standby->promote;
$standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die;
foreach my $client (1 .. 3)
{
	my ($told) = ${ $load[ $client - 1 ]{out} } =~ /(\d+)\n\z/;
	cmp_ok(value($standby, "SELECT epoch FROM lease.inspect('load $client')"), '>=', $told, "no epoch regresses: $told was told (D2)");
	cmp_ok(value($standby, "SELECT epoch FROM lease.acquire('load $client', 'ann', '1 hour')"), '>', $told, 'and the next is greater (I2)');
}
row_is($standby, q{SELECT state_of('held')}, 'held ann 1', 'promoted: a lease is still held');
row_is($standby, "SELECT expires_at > timestamptz '$promoted_at' + interval '50 min' FROM lease.inspect('held')", 't', 'promoted: for as long as before');
swept($standby, "key = 'over'", 'promoted: a lapsed one is swept');
row_is($standby, $workers, '2', 'promoted: there are launcher and sweeper');
# the promoted server's processes start anew: its leases are those of the same clock
$standby->safe_psql('postgres', q{SELECT lease.acquire('new', 'ann', '1 hour')});
my $victim = session($standby);
my $log_at = -s $standby->logfile;
kill 'KILL', $victim->pid;
$standby->wait_for_log(qr/all server processes terminated; reinitializing/, $log_at);
$standby->poll_query_until('postgres', undef, '') or die 'the server does not come back';
row_is($standby, q{SELECT state_of('held'), state_of('new')}, 'held ann 1|held ann 1', 'promoted, then a crash: leases are held');
$standby->stop;

# --- Binary upgrade mode: quiet, and pg_upgrade itself.
my $old = lease_cluster('old');
$old->safe_psql('postgres', $_) foreach (
	q{SELECT lease.acquire('held', 'ann', '1 hour', NULL, '"here"')}, q{SELECT lease.acquire('many', 'ann', '1 hour') FROM generate_series(1, 7)}, q{SELECT lease.release('many', 'ann', 7)});
my $columns = 'key, state, owner, epoch, expires_at, ttl, granted_at, payload';
my $before = value($old, "SELECT $columns FROM lease.entry ORDER BY key");
$old->stop;
my @quiet = ('-D', $old->data_dir, '-w', '-s', '-l', $old->logfile);
$old->command_ok([ 'pg_ctl', @quiet, '-o', '-b', 'start' ], 'a server in binary upgrade mode starts');
sleep 2;
is(value($old, $workers), '0', 'without workers');
is(value($old, q{SELECT count(*) FROM lease.entry}), '2', 'with its table');
$old->command_ok([ 'pg_ctl', @quiet, 'stop' ], 'and stops');
my $new = lease_cluster('new', start => 0);
my ($bindir) = grep { -x "$_/pg_upgrade" } File::Spec->path;
my $work = PostgreSQL::Test::Utils::tempdir();
chdir $work or die $!;
$old->command_ok([ 'pg_upgrade', '--no-sync', '-b', $bindir, '-B', $bindir, '-d', $old->data_dir, '-D', $new->data_dir, '-s', $new->host, '-p', $old->port, '-P', $new->port ], 'pg_upgrade');
$new->start;
row_is($new, "SELECT $columns FROM lease.entry ORDER BY key", $before, 'every key is what it was (I9)');
row_is($new, q{SELECT acquired, epoch FROM lease.acquire('many', 'bob', '800 ms')}, 't|9', 'epochs go on (I2)');
swept($new, "key = 'many'", 'and it is swept');
$new->stop;

done_testing();
