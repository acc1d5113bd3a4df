# Common ground of the TAP tests: servers with the library preloaded, and sessions that can be left waiting.
package LeaseTest;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(lease_cluster create_lease session value row_is counted held_key wait_for_wait wait_for_waiters wait_until_gone counters rss_kb);

# Errors must read the same wherever the tests run.
delete @ENV{qw(RUST_BACKTRACE PGOPTIONS)};
$ENV{PGTZ} = 'UTC';

# A running server with the extension in database postgres. Options: conf => text, start => 0, extension => 0, preload => 0,
# init => [ options of PostgreSQL::Test::Cluster's init ].
sub lease_cluster
{
	my ($name, %option) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(extra => [ '--encoding=UTF8', '--no-locale' ], @{ $option{init} // [] });
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_lease'") if $option{preload} // 1;
	$node->append_conf(
		'postgresql.conf', qq{
autovacuum = off
max_connections = 60
timezone = 'UTC'
lc_messages = 'C'
log_line_prefix = '%m [%p] %q%a '
log_statement = none
restart_after_crash = on
});
	$node->append_conf('postgresql.conf', $option{conf}) if defined $option{conf};
	return $node unless $option{start} // 1;
	$node->start;
	create_lease($node) if $option{extension} // 1;
	return $node;
}

# The extension, and helpers: a key's state without its times; how many keys are claimed, the sweeper's work aside.
sub create_lease
{
	my ($node, $dbname) = @_;

	$node->safe_psql($dbname // 'postgres', q{
		CREATE EXTENSION pg_lease;
		CREATE FUNCTION state_of(key text) RETURNS text LANGUAGE sql AS
			$$ SELECT concat_ws(' ', i.state, i.owner, i.epoch) FROM lease.inspect(state_of.key) i $$;
		CREATE FUNCTION open_claims() RETURNS bigint LANGUAGE sql AS
			$$ SELECT count(*) FROM lease.claims WHERE kind <> 'maintenance' $$;
	});
	return;
}

sub session { return LeaseTest::Session->new(@_); }

# What one statement in a session of its own answers.
sub value
{
	my ($node, $sql, $dbname) = @_;
	return $node->safe_psql($dbname // 'postgres', $sql);
}

sub row_is
{
	my ($node, $sql, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(value($node, $sql), $expected, $name);
}

# What a query of the statistics shows once those of the sessions, and of all that have ended, are in.
sub counted
{
	my ($node, $sql, @open) = @_;

	$_->value('SELECT pg_stat_force_next_flush()') foreach @open;
	$node->poll_query_until('postgres', sprintf(q{
		SELECT count(*) = %d FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()}, scalar @open))
	  or die 'other sessions stay';
	return value($node, $sql);
}

# A key that nobody has used yet, held by 'w' under epoch 1.
my $keys = 0;
sub held_key
{
	my ($session, $ttl) = @_;
	my $key = 'key ' . ++$keys;
	$session->value(sprintf q{SELECT lease.acquire('%s', 'w', '%s')}, $key, $ttl // '1 hour');
	return $key;
}

# Until the session sleeps in a wait of ours: the answer that has not come is one that is being waited for.
sub wait_for_wait
{
	my ($node, @sessions) = @_;

	foreach my $session (@sessions)
	{
		$node->poll_query_until('postgres', sprintf(q{
			SELECT state = 'active' AND wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = %d}, $session->pid))
		  or die "session does not wait";
		die "session does not wait but answered" unless $session->busy;
	}
	return;
}

# Until so many stand in the lists.
sub wait_for_waiters
{
	my ($node, $count) = @_;

	$node->poll_query_until('postgres', "SELECT count(*) = $count FROM lease.waiters")
	  or die 'waiters: ' . value($node, 'SELECT count(*) FROM lease.waiters') . ", not $count";
	return;
}

# What has been counted in the database: { wake_ups => ..., ... }.
sub counters
{
	my ($node) = @_;
	return { map { split /\|/, $_, 2 } split /\n/, value($node, 'SELECT c.* FROM lease.stats s, json_each_text(row_to_json(s)) c') };
}

# Until a backend is no more.
sub wait_until_gone
{
	my ($node, $pid) = @_;

	$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid") or die "backend $pid stays";
	return;
}

# A process's resident memory without what is shared, in kB.
sub rss_kb
{
	my ($pid) = @_;

	open my $statm, '<', "/proc/$pid/statm" or die "no /proc/$pid/statm: $!";
	my (undef, $resident, $shared) = split ' ', <$statm>;
	close $statm;
	return ($resident - $shared) * 4;
}

# A psql that is fed statement by statement.
package LeaseTest::Session;

use IPC::Run;
use Scalar::Util 'weaken';

my @sessions;

sub new
{
	my ($class, $node, %option) = @_;
	my $self = bless { stdin => '', stdout => '', stderr => '', asked => 0 }, $class;
	weaken($sessions[@sessions] = $self);
	my @command = (
		$node->installed_command('psql'), '-XAtq', '-F', '|', '-d', $node->connstr($option{dbname} // 'postgres'), '-f', '-');

	$self->{timeout} = IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default);
	$self->{run} = IPC::Run::start(\@command, '<', \$self->{stdin}, '>', \$self->{stdout}, '2>', \$self->{stderr}, $self->{timeout});
	$self->run("\\set VERBOSITY verbose\nSET client_min_messages = warning;");
	$self->run($option{setup}) if defined $option{setup};
	$self->{pid} = $self->value('SELECT pg_backend_pid();');
	return $self;
}

sub pid { return $_[0]{pid}; }

# Ask; the answer may take its time.
sub send
{
	my ($self, $sql) = @_;

	die "the session has not answered yet" if $self->{mark};
	$self->{timeout}->start;
	$self->{mark} = 'answered ' . ++$self->{asked};
	$sql .= ';' unless $sql =~ /;\s*\z|^\\[^\n]*\z/m;
	$self->{stdin} .= "$sql\n\\echo $self->{mark}\n\\warn $self->{mark}\n";
	$self->{run}->pump_nb;
	return $self;
}

sub _answered
{
	my ($self) = @_;
	return index($self->{stdout}, "$self->{mark}\n") >= 0 && index($self->{stderr}, "$self->{mark}\n") >= 0;
}

# Whether the answer is still to come.
sub busy
{
	my ($self) = @_;

	return 0 unless $self->{mark};
	$self->{run}->pump_nb;
	return !$self->_answered && $self->{run}->pumpable;
}

# The answer: { rows, state, message, detail, hint, context, error }, state '00000' if there was no error;
# the first error counts. A connection that ended has gone => 1.
sub answer
{
	my ($self) = @_;
	my %answer = (state => '00000', gone => 0);

	die "nothing was asked" unless $self->{mark};
	until ($self->_answered)
	{
		if (!$self->{run}->pumpable) { $answer{gone} = 1; last; }
		$self->{run}->pump;
		die "no answer in time" if $self->{timeout}->is_expired;
	}
	$self->{run}->finish if $answer{gone};
	s/^\Q$self->{mark}\E\n//m foreach $self->{stdout}, $self->{stderr};
	($answer{rows} = $self->{stdout}) =~ s/\n\z//;
	$answer{error} = $self->{stderr};
	@answer{qw(severity state message)} = ($1, $2, $3) if $self->{stderr} =~ /(ERROR|FATAL|PANIC):  (\w{5}): (.*)/;
	foreach my $part (qw(DETAIL HINT CONTEXT)) { $answer{ lc $part } = $1 if $self->{stderr} =~ /^$part:  (.*)/m; }
	@$self{qw(stdout stderr mark)} = ('', '', undef);
	Test::More::note("session $self->{pid} answered: ", substr("$answer{rows}\n$answer{error}", 0, 2000)) if $self->{pid};
	return \%answer;
}

# Ask and wait for the answer.
sub run
{
	my ($self, $sql) = @_;
	return $self->send($sql)->answer;
}

# The rows of what must succeed.
sub value
{
	my ($self, $sql) = @_;
	my $answer = $self->run($sql);

	die "failed: $sql: $answer->{error}" if $answer->{state} ne '00000' || $answer->{gone};
	return $answer->{rows};
}

# Test: what a statement, or the answer that is still to come, shows.
sub answers
{
	my ($self, $sql, $expected, $name) = @_;
	my $answer = defined $sql ? $self->run($sql) : $self->answer;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return Test::More::is($answer->{state} eq '00000' ? $answer->{rows} : $answer->{state}, $expected, $name)
	  || Test::More::diag($answer->{error});
}

# Disconnect in an orderly way, whatever transaction is open.
sub quit
{
	my ($self) = @_;

	return unless $self->{run};
	if ($self->{run}->pumpable)
	{
		$self->{stdin} .= "\\q\n";
		eval { $self->{run}->finish };
	}
	delete $self->{run};
	return;
}

# The client vanishes in the middle of whatever it does.
sub kill
{
	my ($self) = @_;

	$self->{run}->signal('KILL');
	eval { $self->{run}->finish };
	delete $self->{run};
	return;
}

# No test waits at its end for what a session is still waiting for.
sub DESTROY
{
	my ($self) = @_;

	local ($@, $?);
	eval { $self->kill } if $self->{run};
	return;
}

END
{
	$_->DESTROY foreach grep { defined } @sessions;
}

1;
